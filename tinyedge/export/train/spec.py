"""What a caller says of training: patterns of names, losses, an optimizer, all by their texts."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyedge import optim
from tinyedge.core.errors import InputError
from tinyedge.core.tensor import losses
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.near import did_you_mean
from tinyedge.optim.optimizer import Optimizer
from tinyedge.optim.wrappers import LossScale

RATE = "lr"  # the input that a step takes its learning rate from
NEAR = 0.4  # how much alike two of a few names are, of which one may have been meant

LOSSES: Mapping[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        losses.cross_entropy,
        losses.nll_loss,
        losses.mse_loss,
        losses.l1_loss,
        losses.huber_loss,
        losses.smooth_l1_loss,
        losses.binary_cross_entropy,
        losses.binary_cross_entropy_with_logits,
        losses.kl_div,
    )
}
OF_CLASSES = ("cross_entropy", "nll_loss")  # whose targets are integers
OPTIMIZERS: Mapping[str, type[Optimizer]] = {
    kind.__name__.lower(): kind
    for kind in (
        optim.SGD,
        optim.Adam,
        optim.AdamW,
        optim.RMSprop,
        optim.Adagrad,
        optim.LARS,
        optim.LAMB,
        optim.Muon,
    )
}


@dataclass(frozen=True)
class Loss:
    """A loss of a value of the model; output "": of the model's only output."""

    name: str
    output: str = ""


@dataclass(frozen=True)
class Training:
    """patterns: of the names of what is trained. rate: of the golden case, where `lr` says it.
    batch: examples of a step; None: as many as the model has. scale: what the loss is multiplied by
    for its gradients; None: by nothing.
    """

    patterns: tuple[str, ...]
    losses: tuple[Loss, ...]
    optimizer: str
    options: Mapping[str, Any]
    rate: float
    batch: int | None = None
    scale: float | None = None

    def make_scale(self, optimizer: Optimizer) -> LossScale | None:
        """The optimizer for a loss that is scaled, if it is. Raises InputError."""
        if self.scale is None:
            return None
        try:
            return LossScale(optimizer, self.scale)
        except ValueError as error:
            raise InputError(f"loss scale {self.scale}", str(error), id="train.scale") from None

    def make_optimizer(self, rate: Tensor) -> Optimizer:
        """The optimizer, at a rate that a step is given. Raises InputError."""
        kind = OPTIMIZERS[self.optimizer]
        options = dict(self.options)
        if "other_lr" in _parameters(kind):
            options.setdefault("other_lr", rate)
        try:
            return kind(rate, **options)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"optimizer {self.optimizer!r}", str(error), id="train.optimizer"
            ) from None


def choose_training(
    patterns: str | Sequence[str],
    losses: str | Sequence[str] | None,
    optimizer: str,
    batch: int | None,
    scale: float | None = None,
) -> Training:
    """Training as the public functions take it. Raises InputError."""
    if not patterns:
        raise InputError(
            "training",
            "no weights are named",
            id="train.pattern",
            supported="patterns of names, as 'head.*'",
            next="name some by --train, or leave --loss and --batch out",
        )
    if not losses:
        raise InputError(
            "the loss",
            "none is named",
            id="train.loss",
            supported=f"LOSS:OUTPUT, of the losses {', '.join(LOSSES)}",
            next="name one, as --loss cross_entropy:scores",
        )
    if batch is not None and batch < 1:
        raise InputError(f"batch {batch}", "a step has at least one example", id="train.batch")
    kind, options, rate = _optimizer(optimizer)
    parsed = tuple(_loss(text) for text in _several(losses))
    return Training(_several(patterns), parsed, kind, options, rate, batch, scale)


def _several(texts: str | Sequence[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _loss(text: str) -> Loss:
    """`LOSS:OUTPUT`; the output's name may hold colons."""
    name, _, output = text.partition(":")
    if name not in LOSSES:
        raise unknown(f"loss {name!r}", "there is no such loss", "train.loss", name, LOSSES)
    return Loss(name, output)


def _optimizer(text: str) -> tuple[str, dict[str, Any], float]:
    """`NAME:OPTION=VALUE,..`: the name, its options and the rate `lr`."""
    name, _, rest = text.partition(":")
    if name not in OPTIMIZERS:
        because = "there is no such optimizer"
        raise unknown(f"optimizer {name!r}", because, "train.optimizer", name, OPTIMIZERS)
    defaults = _parameters(OPTIMIZERS[name])
    options: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        option, equals, value = part.partition("=")
        if not equals:
            raise InputError(
                f"optimizer {name!r}",
                f"{part!r} is not OPTION=VALUE",
                id="train.optimizer",
                supported=", ".join(defaults),
                next=f"the learning rate is {name}:{RATE}=1e-3",
            )
        if option in options or option not in defaults:
            because = "it is given twice" if option in options else "it has no such option"
            subject = f"optimizer {name!r}, option {option!r}"
            meant = RATE if option.endswith("rate") else option  # others call it learning_rate
            raise unknown(subject, because, "train.optimizer", meant, defaults)
        options[option] = _value(f"optimizer {name!r}, option {option!r}", value, defaults[option])
    rate = float(options.pop(RATE, defaults[RATE]))
    if rate < 0:
        subject = f"optimizer {name!r}, option {RATE!r}"
        raise InputError(subject, f"{rate} is negative", id="train.optimizer")
    return name, options, rate


def _parameters(kind: type[Optimizer]) -> dict[str, Any]:
    """An optimizer's options with their defaults."""
    return {name: each.default for name, each in inspect.signature(kind).parameters.items()}


def _value(subject: str, text: str, default: Any) -> Any:
    """An option's value, of the type of its default; of pairs `0.9/0.999`."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        if isinstance(default, tuple):
            first, second = text.split("/")
            return _finite(first), _finite(second)
        return int(text) if isinstance(default, int) else _finite(text)
    except (ValueError, KeyError):
        form = {bool: "true or false", tuple: "two numbers, as 0.9/0.999", int: "a whole number"}
        raise InputError(
            subject,
            f"{text!r} is no value of it",
            id="train.optimizer",
            supported=form.get(type(default), "a number"),
        ) from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def unknown(
    subject: str, because: str, id: str, name: str, known: Collection[str], shown: str = ""
) -> InputError:
    """The error for a name that is none of those known, with those that are near."""
    return InputError(
        subject,
        because,
        id=id,
        supported=shown or ", ".join(known) or "none",
        next=did_you_mean(name, known, NEAR),
    )
