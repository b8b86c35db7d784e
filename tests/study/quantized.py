"""The study's networks in 8 bits, as onnxruntime's quantizer writes them: values and filters behind
DequantizeLinear, values before it behind QuantizeLinear (QDQ); ranges are found by a drawn image.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnxruntime import quantization

from tests.study import networks


def int8(make: Callable[[], Any]) -> Any:
    """Filters of int8 with a scale for each channel, values of uint8: as onnxruntime is fastest."""
    model = make()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        logging.disable()  # it asks for symbolic shapes, which these do not have
        try:
            quantization.quantize_static(
                model,
                file,
                _Images(model),
                quant_format=quantization.QuantFormat.QDQ,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                per_channel=True,
            )
        finally:
            logging.disable(logging.NOTSET)
        return onnx.load(file)


class _Images(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, model: Any) -> None:
        self._left = iter([networks.feeds(model)])

    def get_next(self) -> Any:
        return next(self._left, None)
