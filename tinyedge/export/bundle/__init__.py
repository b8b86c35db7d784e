"""A bundle's format: reading, writing, checking."""
