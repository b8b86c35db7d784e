"""The makers of operators, a file for each family."""

from tests.onnxfuzz.operators import (
    control,
    counted,
    elementwise,
    images,
    indexing,
    linear,
    movement,
    normalization,
    patterns,
    quantized,
    recurrent,
    reductions,
    shapes,
)

FAMILIES = (
    control,
    counted,
    elementwise,
    images,
    indexing,
    linear,
    movement,
    normalization,
    patterns,
    quantized,
    recurrent,
    reductions,
    shapes,
)
