"""A slow line between a page and our server, as a phone has: of time and bytes, nothing dropped.

The server is paced rather than the browser: DevTools slow a browser down too, but then it keeps
what arrives, up to 100 MB in the page's process, and so nothing can be said of its memory.
"""

from __future__ import annotations

import io
import time
from threading import Lock

PIECE = 16_384  # bytes, in which connections take turns


class Way:
    """One direction, of `rate` bytes a second (may be infinite), that all connections share."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.bytes = 0
        self._free = 0.0
        self._lock = Lock()

    def take(self, size: int, ready: float) -> float:
        """When the last of so many bytes is through, the first being there at `ready`; seconds."""
        with self._lock:
            self.bytes += size
            self._free = max(self._free, ready) + size / self.rate
            return self._free


class Line:
    """`latency`: seconds there and back, of each request; `down`, `up`: bytes a second.

    Requests and bytes are counted, headers with them. Connections take no time to open.
    """

    def __init__(self, latency: float, down: float, up: float) -> None:
        self.latency = latency
        self.down = Way(down)
        self.up = Way(up)
        self.requests = 0
        self._lock = Lock()

    def asked(self, size: int) -> None:
        """Waits until a request of so many bytes, sent now, has arrived."""
        with self._lock:
            self.requests += 1
        wait_until(self.up.take(size, time.monotonic()) + self.latency / 2)


class Paced(io.RawIOBase):
    """What a connection's answers are written to."""

    def __init__(self, below: io.BufferedIOBase, line: Line) -> None:
        self._below = below
        self._line = line
        self._ready = 0.0

    def begin(self) -> None:
        """An answer's way back begins."""
        self._ready = time.monotonic() + self._line.latency / 2

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            through = self._line.down.take(len(piece), self._ready)
            wait_until(through)
            before = time.monotonic()
            self._below.write(piece)
            # the next piece was there meanwhile, but for what a reader that is behind holds up
            self._ready = through + time.monotonic() - before
        return len(data)


def wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
