"""Arrays in files, as `numpy.save` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MAGIC = b"\x93NUMPY"


def is_array(path: str | Path) -> bool:
    """Whether a file begins as `numpy.save` begins one; False where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_array(path: str | Path) -> Array:
    """The array in a .npy file; objects are not read. Raises ValueError that says the cause."""
    try:
        with Path(path).open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("it is not a .npy file")
            file.seek(0)
            array: Array = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise ValueError("there is no such file") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, MemoryError) as error:
        cause = str(error)
        raise ValueError(
            "it holds Python objects" if "pickle" in cause or "Object" in cause else cause
        ) from None
    return array
