"""The makers of operators, a file for each family."""

from tests.onnxfuzz.operators import (
    control,
    counted,
    elementwise,
    images,
    indexing,
    linear,
    movement,
    normalisation,
    patterns,
    quantised,
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
    normalisation,
    patterns,
    quantised,
    recurrent,
    reductions,
    shapes,
)
