"""What a caller should know of losses that are of another kind of value than they take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tinyedge.export.train.spec import Loss

# What losses take, and the operator whose results they are then wrongly of.
TAKEN = {
    "cross_entropy": ("logits", "Softmax"),
    "nll_loss": ("logarithms of probabilities", "Softmax"),
    "binary_cross_entropy_with_logits": ("logits", "Sigmoid"),
}
INSTEAD = {"nll_loss": "cross_entropy"}
SAME_VALUES = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast")


def advice(losses: Iterable[Loss], graph: Any) -> Iterator[str]:
    """For each loss of what a Softmax or Sigmoid of the graph gives, where it takes logits."""
    made = {name: node for node in graph.node for name in node.output if name}
    for loss in losses:
        takes, operator = TAKEN.get(loss.name, ("", ""))
        node = made.get(loss.output)
        while node is not None and node.op_type in SAME_VALUES:
            node = made.get(node.input[0])
        if node is not None and node.op_type == operator:
            better = f"{INSTEAD.get(loss.name, loss.name)}:{node.input[0]}"
            yield (
                f"loss {loss.name!r} takes {takes}, and {loss.output!r} is what a {operator} "
                f"gives: its gradients are small and it never gets to 0; you may mean {better}"
            )
