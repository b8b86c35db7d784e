"""Errors in three families: the caller's input, the device, and our own bugs.

Every error has a stable `id` (shared with the other runtimes where they can meet the same fault),
names its subject, and says the cause, what is supported and what to do next.
"""

from __future__ import annotations

import re


class TinyedgeError(Exception):
    """Base of everything tinyedge raises on purpose.

    Attributes:
        id: A stable dotted identifier such as `bundle.hash`.
        subject: What it is about: a node, a file, an input.
        because: The cause.
        supported: What would have worked; may be empty.
        next: The user's next step; may be empty.
        family: "input", "device" or "bug".
    """

    family = "tinyedge"
    usual_next = ""  # the next step where an error names none

    def __init__(
        self,
        subject: str,
        because: str,
        *,
        id: str,
        supported: str = "",
        next: str = "",
    ) -> None:
        self.id = id
        self.subject = subject
        self.because = because
        self.supported = supported
        self.next = next or self.usual_next
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [
            f"{type(self).__name__}: {_shown(self.subject)} [{self.id}]",
            f"  because    {_shown(self.because)}",
        ]
        if self.supported:
            lines.append(f"  supported  {_shown(self.supported)}")
        if self.next:
            lines.append(f"  next       {_shown(self.next)}")
        return "\n".join(lines)


def _shown(text: str) -> str:
    """A part of an error without control characters: names in it come from models.

    Line ends stay where the next line is indented deeper than the parts themselves are.
    """
    text = re.sub(r"\n(?! {4})", r"\\n", text)
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
        for letter in text
    )


class InputError(TinyedgeError):
    """Something the caller gave is wrong: a model, a bundle, an array, an option."""

    family = "input"

    def with_next(self, next: str) -> InputError:
        """The same error with another next step."""
        return type(self)(
            self.subject, self.because, id=self.id, supported=self.supported, next=next
        )


class ModelError(InputError):
    """A model file that is damaged, hostile or inconsistent."""

    usual_next = "export the model again; its format's checker finds most such faults"


class UnsupportedOp(ModelError):
    """A valid model with an operator, or a use of one, that cannot be imported."""

    usual_next = "change the model there, or open an issue that says what it is for"


class BundleError(InputError):
    """A bundle that fails verification."""


class RunError(InputError):
    """A wrong input name, dtype or shape at run time."""


class TraceError(InputError, TypeError):
    """A value was asked for that only a run knows, or a function that is compiled is not pure."""


class DeviceError(TinyedgeError):
    """No device, a device that is too small, or one that was lost."""

    family = "device"


class InternalError(TinyedgeError):
    """A bug in tinyedge: please report it with the model and the command."""

    family = "bug"
