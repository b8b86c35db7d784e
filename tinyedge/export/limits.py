"""What a model may ask of the importer; beyond it the model is refused."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tinyedge.core.errors import InputError, ModelError

LARGEST = (1 << 31) - 1  # elements that kernels can count, bytes of a protocol buffer


FREE_BYTES = 1 << 23  # of weights and kernels that any model may have


@dataclass(frozen=True)
class Limits:
    """Each is an option, `--limit NAME=N`."""

    file_bytes: int = LARGEST  # of the .onnx file; weights in files beside it are not counted
    # 1 where external data may lie wherever a link in the model's folder leads, else 0
    # (`--allow-links`). Links into the same cache of downloaded files are followed anyway.
    links: int = 0
    nodes: int = 50_000  # that the file holds, those of subgraphs and functions included
    # nodes of subgraphs and functions as often as they are imported, once for each iteration of a
    # loop and each call; steps that operators unroll; a node's operands and results after the 64th
    unrolled: int = 10_000
    elements: int = LARGEST  # of any one tensor, at the largest sizes of the symbols
    axes: int = 16  # of any one tensor
    terms: int = 200  # of any one size, written out as an expression of the symbols
    sizes: int = 1 << 14  # computed by the model's arithmetic on open sizes
    nesting: int = 64  # subgraphs and functions inside each other
    # elements of all constants that operators make (indices, weights of a transform), and of sparse
    # weights
    made: int = 1 << 24
    # a constant result up to this size (or up to the size of the weights it is made of) is computed
    # at import; a greater one is left to the compiled graph
    folded_bytes: int = 1 << 20
    # operations on elements that computing constants may take, beside what the weights allow; what
    # takes more is left to the run
    folded_work: int = 1 << 28
    # how many times the bytes of the weights the constants may take that are computed of them, once
    # at import and once in the compiler; what takes more is left to the run
    folded_growth: int = 2
    # how many times the bytes of the model the weights and kernels of a bundle may take; up to
    # FREE_BYTES they may take anyway
    bundle_growth: int = 16
    # golden_work, golden_bytes: operations on elements, and bytes of memory, that the golden case
    # of an entry may take; one that takes more is not made
    golden_work: int = 1 << 38
    golden_bytes: int = 1 << 32

    def exceeded(self, name: str, subject: str, because: str, unit: str = "") -> ModelError:
        """The error for a model that asks for more than the limit of that name."""
        limit = getattr(self, name)
        if limit < GREATEST.get(name, LARGEST):
            step = f"if that is meant, allow more: --limit {name}=N"
        else:
            step = "no limit allows more: make the model smaller"
        supported = f"up to {limit} {unit or name}"
        return ModelError(subject, because, id="model.limit", supported=supported, next=step)


# What any option can allow; LARGEST for the others.
GREATEST = {"links": 1, "axes": 32, "nesting": 1000}
GREATEST |= dict.fromkeys(("folded_work", "golden_work", "golden_bytes"), 1 << 62)


USUAL: dict[str, int] = asdict(Limits())


def choose_limits(given: Mapping[str, Any] | None) -> Limits:
    """The limits with some of them changed, by name. Raises InputError."""
    usual = dict(USUAL)
    for name, value in (given or {}).items():
        subject = f"--limit {shlex.quote(f'{name}={value}')}"
        if name not in usual:
            raise InputError(
                subject, "there is no such limit", id="option.limit", supported=", ".join(USUAL)
            )
        most = GREATEST.get(name, LARGEST)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise InputError(
                subject,
                "it is not a number that this limit can be",
                id="option.limit",
                supported=f"1 to {most}; {USUAL[name]} if it is not given",
            )
        usual[name] = value
    return Limits(**usual)
