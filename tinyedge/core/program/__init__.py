"""What a compiled program is, and how it is replayed: all that loading a bundle needs."""
