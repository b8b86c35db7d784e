"""Tensors with values: computed on a device when they are wanted, and functions compiled once."""
