"""From graphs to a program: the stages, in the order of compile.py."""
