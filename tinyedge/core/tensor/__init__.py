"""Tensors, whose methods compose the primitives, and the graphs that they make."""
