"""Comparing a bundle with the model it was made from."""
