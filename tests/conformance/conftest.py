"""What of the suite is slow."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PoCL compiles slowly: plain kernels, which differ little from target to target, are for long
    runs.
    """
    for item in items:
        call = getattr(item, "callspec", None)
        params = call.params if call is not None else {}
        if params.get("target") == "qcom" and params.get("optimize") is False:
            item.add_marker(pytest.mark.slow)
