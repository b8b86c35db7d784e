"""Pickles of containers and numbers, read without running anything in them.

A pickle is a program for a machine with a stack and a memo (Python's module pickletools lists its
operations). This reader knows those that build numbers, texts, lists, tuples, dicts and sets; a
class or function is only its name, and a caller says what a call of one gives. Whatever else a
pickle asks for is a ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Call = Callable[..., Any]


class Name(NamedTuple):
    """What a pickle calls by name: a class or a function of a module."""

    module: str
    name: str


class Other:
    """A value that is neither a container nor a number, such as a tensor."""


MARK = Name("", "mark")
LIST, DICT, SET = list, dict, set
KEYS = (str, int, bool, type(None))
MOST_KEY = 2**53  # of an integer: greater ones may be made to have one hash
# Operations that push a value of their own, and the values.
EMPTY: Mapping[int, Callable[[], Any]] = {
    ord("]"): list,
    ord("}"): dict,
    ord(")"): tuple,
    ord("N"): lambda: None,
    0x88: lambda: True,
    0x89: lambda: False,
    0x8F: set,
}
# Operations followed by a number, and its form.
NUMBERS = {ord("K"): "<B", ord("M"): "<H", ord("J"): "<i", ord("G"): ">d"}
# Operations followed by as many bytes as the number of a form says, and what these are.
BYTES: Mapping[int, tuple[str, Callable[[bytes], Any]]] = {
    0x8C: ("<B", lambda raw: raw.decode("utf-8", "surrogatepass")),
    ord("X"): ("<I", lambda raw: raw.decode("utf-8", "surrogatepass")),
    0x8D: ("<Q", lambda raw: raw.decode("utf-8", "surrogatepass")),
    ord("U"): ("<B", lambda raw: raw.decode("latin-1")),
    ord("T"): ("<I", lambda raw: raw.decode("latin-1")),
    ord("C"): ("<B", bytes),
    ord("B"): ("<I", bytes),
    0x8E: ("<Q", bytes),
    0x8A: ("<B", lambda raw: int.from_bytes(raw, "little", signed=True)),
    0x8B: ("<I", lambda raw: int.from_bytes(raw, "little", signed=True)),
}
FIXED = {0x85: 1, 0x86: 2, 0x87: 3}  # tuples of so many
GET = {ord("h"): "<B", ord("j"): "<I"}
PUT = {ord("q"): "<B", ord("r"): "<I"}


def read(raw: bytes, calls: Mapping[Name, Call], persistent: Call) -> Any:
    """What a pickle holds. calls: what a call of a name gives, and the names that may occur.
    persistent: what stands for an object outside of the pickle, by what the pickle says of it.

    Raises ValueError.
    """
    return _Machine(raw, calls, persistent).run()


class _Machine:
    def __init__(self, raw: bytes, calls: Mapping[Name, Call], persistent: Call) -> None:
        self._raw, self._at = raw, 0
        self._calls, self._persistent = calls, persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._steps: dict[int, Callable[[], None]] = {
            0x80: self._protocol,
            0x95: lambda: self._skip(8),  # a frame's size
            ord("("): lambda: self._stack.append(MARK),
            ord("0"): lambda: self._drop(),
            ord("c"): self._global,
            0x93: self._global_of_stack,
            ord("R"): self._call,
            0x81: self._call,
            ord("b"): self._build,
            ord("Q"): lambda: self._stack.append(self._persistent(self._pop())),
            0x94: lambda: self._put(len(self._memo)),
            ord("t"): lambda: self._stack.append(tuple(self._marked())),
            ord("a"): lambda: self._extend([self._pop()], LIST),
            ord("e"): lambda: self._extend(self._marked(), LIST),
            ord("s"): lambda: self._fill([self._pop(), self._pop()][::-1]),
            ord("u"): lambda: self._fill(self._marked()),
            0x90: lambda: self._extend(self._marked(), SET),
        }

    def run(self) -> Any:
        while True:
            code = self._take(1)[0]
            if code == ord("."):
                return self._pop()
            if code in EMPTY:
                self._stack.append(EMPTY[code]())
            elif code in NUMBERS:
                self._stack.append(self._number(NUMBERS[code]))
            elif code in BYTES:
                form, made = BYTES[code]
                self._stack.append(made(self._take(self._number(form))))
            elif code in FIXED:
                parts = [self._pop() for _ in range(FIXED[code])]
                self._stack.append(tuple(parts[::-1]))
            elif code in GET:
                self._stack.append(self._got(self._number(GET[code])))
            elif code in PUT:
                self._put(self._number(PUT[code]))
            elif code in self._steps:
                self._steps[code]()
            else:
                raise ValueError(f"its operation {code:#04x} at byte {self._at - 1} is not known")

    # The bytes.

    def _take(self, count: int) -> bytes:
        if count > len(self._raw) - self._at:
            raise ValueError("it ends too early")
        self._at += count
        return self._raw[self._at - count : self._at]

    def _skip(self, count: int) -> None:
        self._take(count)

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self._raw.find(b"\n", self._at, self._at + 300)
        if end < 0:
            raise ValueError("a name in it has no end")
        line = self._take(end + 1 - self._at)[:-1]
        return line.decode("utf-8", "backslashreplace")

    def _protocol(self) -> None:
        version = self._take(1)[0]
        if not 2 <= version <= 5:
            raise ValueError(f"its protocol is {version}")

    # The stack and the memo.

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is MARK:
            raise ValueError("an operation in it lacks an operand")
        return self._stack.pop()

    def _drop(self) -> None:
        if not self._stack:
            raise ValueError("an operation in it lacks an operand")
        self._stack.pop()

    def _marked(self) -> list[Any]:
        """What lies above the last mark, which goes, too."""
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is MARK:
                found = self._stack[place + 1 :]
                del self._stack[place:]
                return found
        raise ValueError("an operation in it lacks a mark")

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise ValueError(f"it fills a {kind.__name__} where there is none")
        return self._stack[-1]

    def _put(self, number: int) -> None:
        value = self._pop()
        self._stack.append(value)
        self._memo[number] = value

    def _got(self, number: int) -> Any:
        if number not in self._memo:
            raise ValueError(f"it reads number {number} of its memo, which it did not write")
        return self._memo[number]

    # Containers.

    def _extend(self, values: list[Any], kind: type) -> None:
        target = self._top(kind)
        if kind is SET:
            target.update(map(_key, values))
        else:
            target.extend(values)

    def _fill(self, values: list[Any]) -> None:
        if len(values) % 2:
            raise ValueError("a dict in it has a key without a value")
        self._top(DICT).update(zip(map(_key, values[::2]), values[1::2], strict=True))

    # Names and calls.

    def _global(self) -> None:
        self._name(self._line(), self._line())

    def _global_of_stack(self) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("a name in it is no text")
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        found = Name(module, name)
        if found not in self._calls:
            raise ValueError(f"it asks for {_shown(module)}.{_shown(name)}")
        self._stack.append(found)

    def _call(self) -> None:
        operands, name = self._pop(), self._pop()
        if type(name) is not Name or name not in self._calls or type(operands) is not tuple:
            raise ValueError("it calls what is no function")
        self._stack.append(self._calls[name](*operands))

    def _build(self) -> None:
        """Attributes of a dict, which a dict here has none of."""
        self._pop()
        self._top(DICT)


def _key(value: Any) -> Any:
    if type(value) not in KEYS or (type(value) is int and abs(value) > MOST_KEY):
        raise ValueError(f"a {type(value).__name__} in it is a key")
    return value


def _shown(name: str) -> str:
    return ascii(name[:80])[1:-1]
