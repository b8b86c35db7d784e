"""Gradients of ONNX's cases, and the list of those that have none to compare."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from tests.export.backend import expectations, gradients
from tests.export.backend.cases import cases


@pytest.mark.filterwarnings("ignore")
def test_cases_agree() -> None:
    with np.errstate(all="ignore"):
        found = [gradients.outcome(case) for case in cases()]
    wrong = [f"{o.name}: {o}" for o in found if o.verdict not in ("pass", "refused")]
    assert not wrong, "\n".join(wrong)
    if onnx.__version__ == expectations.load().onnx:
        refused = {o.name: o.detail for o in found if o.verdict == "refused"}
        assert refused == gradients.listed()
        assert Counter(o.verdict for o in found)["pass"] >= 1240
