"""What of the suite is slow."""

from __future__ import annotations

import pytest

FIRST = "mechanisms"  # of groups of models, the one that has each mechanism once
WHOLE = ("test_unique", "test_non_max_suppression")  # dozens of kernels each


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """OpenCL compiles slowly, and CUDA kernels run as C++ here: long cases are for long runs."""
    for item in items:
        call = getattr(item, "callspec", None)
        params = call.params if call is not None else {}
        long = getattr(item, "originalname", "") in WHOLE or params.get("group", FIRST) != FIRST
        if params.get("target") in ("qcom", "cuda") and long:
            item.add_marker(pytest.mark.slow)
