"""Pages built by the bundlers that web developers use."""
