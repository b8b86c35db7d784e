"""What a computation is: nodes, the table of primitives, rewriting, and what each means."""
