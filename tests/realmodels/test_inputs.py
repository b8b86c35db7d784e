"""The models answer to their inputs, by onnxruntime: what is compared elsewhere is not noise."""

from __future__ import annotations

import numpy as np

from tests import models
from tests.bench.cases import session
from tests.realmodels import cases
from tests.realmodels.inputs import TEXT


def test_the_text_is_found() -> None:
    scores = cases.expected("ocr_det")["sigmoid_0.tmp_0"]
    assert 0.02 < (scores > 0.5).mean() < 0.8


def test_the_text_is_read() -> None:
    data = session(models.path("ocr_rec")).get_modelmeta().custom_metadata_map["character"]
    letters = ["", *data.splitlines(), " "]
    best = cases.expected("ocr_rec")["softmax_11.tmp_0"][0].argmax(-1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    assert "".join(letters[i] for i in best[changed]).startswith(TEXT.strip())


def test_the_face_is_seen() -> None:
    assert cases.expected("pnet")["softmax"][..., 1].max() > 0.9
    assert cases.expected("rnet")["softmax_1"][0, 1] > 0.9


def test_the_tone_is_followed() -> None:
    pitch = cases.expected("swift_f0")["pitch"][0, 2:-2]
    expected = 100 * 8 ** (np.arange(62)[2:-2] / 62)
    np.testing.assert_allclose(pitch, expected, rtol=0.03)


def test_the_file_is_recognized() -> None:
    assert cases.expected("magika")["target_label"].max() > 0.9
