"""Targets, one folder each. The table of names is in the package's root."""
