"""Equations: index arithmetic, algebra on values, decompositions."""
