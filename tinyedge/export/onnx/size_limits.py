"""Shapes of results are held to what a model may ask for."""

from __future__ import annotations

from tinyedge.core.errors import ModelError
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, UOp, toposort
from tinyedge.export.limits import Limits
from tinyedge.export.onnx.causes import Causes, next_step
from tinyedge.export.onnx.equality import show, too_small


class SizeLimits:
    """The limits of one import. causes: what its open sizes come from, for messages."""

    def __init__(self, limits: Limits, causes: Causes) -> None:
        self.limits = limits
        self.causes = causes
        self._written: dict[UOp, int] = {}

    def check(self, shape: Shape, subject: str) -> None:
        """Raise ModelError for a shape beyond the limits, or one that cannot be."""
        limits = self.limits
        if any(isinstance(size, int) and size < 0 for size in shape):
            because = f"its shape {show(shape)} has a negative size"
            raise ModelError(subject, because, id="model.node")
        for size in shape:
            if isinstance(size, UOp) and self._terms_of(size) > limits.terms:
                raise ModelError(
                    subject,
                    "a size of its result is too complicated an expression of the open sizes",
                    id="model.limit",
                    supported=f"expressions of up to {limits.terms} terms",
                    next=next_step(
                        self.causes.of((size,)),
                        "fix a size with --dim, or give it a step that keeps halves whole",
                    ),
                )
            error = too_small(subject, size, 0, self.causes)
            if error is not None:
                raise error
        count = product(size for size in shape if size != 0)  # what is empty may be reshaped
        try:
            most = maximum(count)
        except ValueError:
            return
        if len(shape) > limits.axes:
            raise limits.exceeded("axes", subject, f"its result has {len(shape)} axes")
        if most > limits.elements:
            because = f"its shape {show(shape)} has up to {most} elements"
            error = limits.exceeded("elements", subject, because)
            smaller = self.causes.smaller(shape)
            raise error.with_next(smaller) if smaller else error

    def _terms_of(self, size: UOp) -> int:
        """How long a size is when written out."""
        for node in toposort((size,), stop=lambda n: n in self._written):
            if node not in self._written:
                self._written[node] = 1 + sum(self._written[source] for source in node.src)
        return self._written[size]
