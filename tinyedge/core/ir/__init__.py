"""What a computation is: nodes, the table of primitives, rewriting, and what each means."""

# They say how the nodes of `uop` compute their shapes and their operators: no node is made before.
from tinyedge.core.ir import attend as attend
from tinyedge.core.ir import memory as memory
from tinyedge.core.ir import movement as movement
from tinyedge.core.ir import shapes as shapes
from tinyedge.core.ir.rules import index as index
