"""The loss of connectionist temporal classification: of sequences whose places are not known.

A. Graves and others, Connectionist Temporal Classification: Labelling Unsegmented Sequence Data
with Recurrent Neural Networks, 2006, section 4.1, by logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.losses import reduced
from tinyedge.core.tensor.tensor import Tensor

NONE = -1e30  # the logarithm of a chance of 0; infinity would give NaN in gradients


def ctc_loss(
    logs: Tensor,
    target: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the chance of a sequence of classes, summed over all places where they may stand.

    logs: [T, N, C], logarithms of chances in each step. target: [N, S] integers, of which the first
    target_lengths [N] count, of the first input_lengths [N] steps; none of them is `blank`, the
    class of no class. A mean is of losses divided by the lengths of their targets, 0 as 1. A target
    that does not fit has an infinite loss; zero_infinity: 0.
    """
    _check(logs, target, input_lengths, target_lengths, blank)
    steps, count, _ = logs.shape
    target = target.cast(dt.int32)
    size = target.shape[1]
    last = Tensor.full((count, 1), blank, dt.int32)
    blanks = Tensor.full((count, size, 1), blank, dt.int32)
    pairs = Tensor.concat([blanks, target.unsqueeze(2)], 2).reshape((count, size * 2))
    labels = Tensor.concat([pairs, last], 1) if size != 0 else last
    width = size * 2 + 1
    wide = logs if logs.dtype.bits >= 32 else logs.cast(dt.float32)
    index = labels.unsqueeze(0).broadcast_to((steps, count, width))
    shown = wide.gather_elements(2, index).maximum(NONE)
    before = _later(labels, 2, -1)
    other = labels.ne(blank) & labels.ne(before)
    ends = target_lengths.cast(dt.int32).unsqueeze(1) * 2
    places = Tensor.arange(width).unsqueeze(0)

    def step(t: Tensor, sums: Tensor) -> Sequence[Tensor]:
        ways = [sums, _later(sums, 1, NONE), other.where(_later(sums, 2, NONE), NONE)]
        new = _log_sum(ways) + shown.gather(0, t)
        going = (input_lengths.cast(dt.int32) > t).unsqueeze(1)
        return t + 1, going.where(new.maximum(NONE), sums)

    first = (places < 2).where(shown[0], NONE)
    sums = Tensor.loop([Tensor(1, dt.int32), first], step, trips=steps - 1)[1]
    both = [places.eq(end).where(sums, NONE).max(1) for end in (ends, ends - 1)]
    losses = -_log_sum(both)
    never = losses > -NONE / 2
    losses = never.where(0.0 if zero_infinity else float("inf"), losses)
    if reduction == "mean":
        losses = losses / target_lengths.cast(losses.dtype).maximum(1.0)
    return reduced(losses, reduction)


def _check(
    logs: Tensor, target: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> None:
    if logs.ndim != 3 or not logs.dtype.is_float:
        raise ValueError(f"logarithms of {logs.dtype} {list(logs.shape)}: floats [T, N, C]")
    steps, count, classes = logs.shape
    if not target.dtype.is_int or target.ndim != 2 or target.shape[0] != count:
        raise ValueError(f"targets of {target.dtype} {list(target.shape)}: integers [{count}, S]")
    for name, lengths in (("input", input_lengths), ("target", target_lengths)):
        if not lengths.dtype.is_int or lengths.shape != (count,):
            kind = f"{lengths.dtype} {list(lengths.shape)}"
            raise ValueError(f"{name} lengths of {kind}: integers [{count}]")
    if steps == 0 or (isinstance(classes, int) and not 0 <= blank < classes):
        raise ValueError(f"blank {blank} of {classes} classes in {steps} steps")


def _later(x: Tensor, count: int, value: float) -> Tensor:
    """The last axis so many places later."""
    return x.pad([(0, 0), (count, 0)], value)[:, : x.shape[1]]


def _log_sum(parts: list[Tensor]) -> Tensor:
    """log(sum(exp(part)))"""
    most = parts[0]
    for part in parts[1:]:
        most = most.maximum(part)
    most = most.detach()
    total = (parts[0] - most).exp()
    for part in parts[1:]:
        total = total + (part - most).exp()
    return total.log() + most
