"""Checks of real models: `python -m tests.realmodels --train`; see `training`."""

from __future__ import annotations

import argparse
import sys

from tests.realmodels import training
from tinyedge.model import TARGETS

parser = argparse.ArgumentParser(prog="python -m tests.realmodels", description=__doc__)
parser.add_argument("models", nargs="*", help="their names; default: all without states")
parser.add_argument("--train", action="store_true", required=True, help=training.__doc__)
parser.add_argument("--target", choices=TARGETS, default="cpu")
parser.add_argument("--all", action="store_true", help="train all weights")
options = parser.parse_args()
sys.exit(training.report(options.models, options.target, options.all))
