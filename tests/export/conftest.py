"""What of the suite is slow."""

from __future__ import annotations

import pytest

WHOLE = ("test_unique", "test_non_max_suppression")  # dozens of kernels each


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """OpenCL compiles slowly, and CUDA kernels run as C++ here: long cases are for long runs."""
    for item in items:
        call = getattr(item, "callspec", None)
        target = call.params.get("target") if call is not None else None
        if target in ("qcom", "cuda") and getattr(item, "originalname", "") in WHOLE:
            item.add_marker(pytest.mark.slow)
