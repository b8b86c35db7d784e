"""What other programs write: exporters, optimizers and quantizers, and what becomes of their files.

`list.json` says of each file whether it passes or why it is refused. `recipes.py` says how an
exporter is added.
"""
