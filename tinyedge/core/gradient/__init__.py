"""Derivatives: functions from graphs to graphs, over the primitives alone."""
