"""Writing a bundle for a target: its runtime, its page, its C program."""
