"""Stored types through a bundle's own C: codes in and out, what they mean, goldens."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tests import stored
from tests.runtimes_c import build
from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import Context
from tests.runtimes_c.test_models import build_bundle, run_files
from tinyedge.core import dtype as dt
from tinyedge.export.bundle.reading import read


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "bundle"
    tinyedge.export_function(stored.function, stored.examples(), target="cpu", out=path)
    return path


def test_codes_in_and_out(bundle: Path) -> None:
    program = build_bundle(bundle)
    said = build.run(program, bundle, "--self-test")
    outputs = 3 * len(dt.STORED)
    assert re.search(rf"^self-test: 1 cases, {outputs} outputs: 0 wrong, 0 distinct", said)
    inputs = stored.examples(seed=4)
    got = run_files(program, bundle, {name: dt.codes(array) for name, array in inputs.items()})
    for name, want in stored.expected(inputs).items():
        np.testing.assert_array_equal(got[name], dt.codes(want), err_msg=name)


def test_ports_say_what_codes_mean(bundle: Path, library: Build) -> None:
    context = Context(library(read(bundle).program))
    names = [dtype.name.encode() for dtype in dt.STORED]
    assert [context.info(0, i).codes for i in range(len(names))] == names
    assert [context.info(1, i).codes for i in range(3)] == [names[0], b"", names[0]]
    context.close()


def test_headers_say_what_codes_mean(bundle: Path) -> None:
    text = (bundle / "model.h").read_text()
    for dtype in dt.STORED:
        prefix = f"#define BUNDLE_INPUT_{dtype.name.upper()}"
        assert f"{prefix}_DTYPE TE_{dtype.storage_type.upper()}\n" in text
        assert f'{prefix}_CODES "{dtype.name}"\n' in text
    assert "BUNDLE_OUTPUT_BFLOAT16_NUMBERS_DTYPE" in text
    assert "BUNDLE_OUTPUT_BFLOAT16_NUMBERS_CODES" not in text
