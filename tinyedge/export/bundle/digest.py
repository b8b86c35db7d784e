"""Hashes of a file, as a whole and by blocks."""

from __future__ import annotations

import hashlib
from typing import Any

from tinyedge.export.bundle.bounds import BLOCK_BYTES


class Digest:
    """The SHA-256 of bytes that come piece by piece; by blocks, those of each block too."""

    def __init__(self, by_blocks: bool) -> None:
        self.by_blocks = by_blocks
        self.whole = hashlib.sha256()
        self.blocks: list[str] = []
        self.block = hashlib.sha256()
        self.room = BLOCK_BYTES  # in the block

    def update(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        self.whole.update(view)
        while self.by_blocks and len(view):
            part, view = view[: self.room], view[self.room :]
            self.block.update(part)
            self.room -= len(part)
            if not self.room:
                self._end()

    def _end(self) -> None:
        self.blocks.append(self.block.hexdigest())
        self.block, self.room = hashlib.sha256(), BLOCK_BYTES

    def hexdigests(self) -> tuple[str, list[str]]:
        """Of all bytes, and of the blocks, the last of which may be shorter; to be asked once."""
        if self.room < BLOCK_BYTES:
            self._end()
        return self.whole.hexdigest(), self.blocks
