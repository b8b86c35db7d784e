"""`python -m tests.study`: generated kernels beside hand-written C and other libraries.

    python -m tests.study                                   # operations, all sides (minutes)
    python -m tests.study matmul softmax --sides hand tinyedge
    python -m tests.study models resnet18 --threads 1       # models on one and two threads
    python -m tests.study scale --json FILE --plots FOLDER
    python -m tests.study --target webgpu                   # also qcom, cuda: on their devices
    python -m tests.study gpu --json FOLDER                 # a lent GPU: operations, then models
    python -m tests.study fit --profile avx512              # constants of the compiler's cost rules
    python -m tests.study fit --target webgpu               # those of devices

Prints Markdown; exits with 1 where tinyedge itself gave no answer. What each figure means:
docs/study.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import cases
from tests.bench.worker import SideError
from tests.study import (
    fit,
    fit_single,
    models,
    networks,
    operate,
    operations,
    report,
    scale,
    sides,
)
from tests.study.device import programs, replayed
from tests.study.sides import Effort
from tinyedge.choices import find_target
from tinyedge.core.errors import TinyedgeError


def main(arguments: list[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["gpu"]:
        return gpu(given[1:])
    study = given.pop(0) if given[:1] and given[0] in STUDIES else "operations"
    options = _parser(study).parse_args(given)
    try:
        result = STUDIES[study](options)
    except (TinyedgeError, RuntimeError, SideError) as error:
        print(f"{error}\nSides are left out by --sides.", file=sys.stderr)
        return 1
    if options.json:
        text = json.dumps(result, indent=1) + "\n"
        Path(options.json).write_text(text, encoding="utf-8")
    if options.plots:
        report.write_plots(result, Path(options.plots))
    print(report.markdown(result))
    missing = report.unanswered(result)
    if missing:
        print(f"tinyedge gave no answer: {', '.join(missing)}", file=sys.stderr)
    return int(bool(missing))


def gpu(arguments: list[str]) -> int:
    """Both studies on the machine's GPU, by CUDA; one that fails does not keep the other."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.study gpu",
        description="Operations, then models, on a GPU by CUDA: one command for a lent machine.",
    )
    parser.add_argument("--json", metavar="FOLDER", default="study-gpu", help="default: study-gpu")
    folder = Path(parser.parse_args(arguments).json)
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for study, more in (("operations", ["--huge"]), ("models", [])):
        words = [] if study == "operations" else [study]
        files = ["--json", str(folder / f"{study}.json"), "--plots", str(folder)]
        status |= main([*words, "--target", "cuda", *more, *files])
    return status


def _parser(study: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.study" + ("" if study == "operations" else f" {study}"),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    parser.add_argument("--plots", metavar="FOLDER", help="write plots as SVG files")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of runs a side (default 3)")
    if study == "operations":
        kinds = ", ".join(dict.fromkeys(case.kind for case in operations.cases().values()))
        parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {kinds}; default: all")
        _add_sides(parser, operations.SIDES, "all that the target has")
        parser.add_argument(
            "--huge", action="store_true", help="also 100 million numbers; cpu: matrices of 4096"
        )
    elif study == "models":
        names = ", ".join(cases.ALL)
        parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {names}; default: all")
        _add_sides(
            parser,
            models.SIDES,
            "for the cpu all but tinygrad; for qcom tinyedge, tinygrad; else tinyedge",
        )
        parser.add_argument(
            "--threads", type=int, nargs="+", help="default: 1, then 2; on a device: 1"
        )
    elif study == "fit":
        names = ", ".join(networks.NETWORKS)
        parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {names}")
        targets = tuple(dict.fromkeys(each.target for each in fit_single.CONSTANTS.values()))
        parser.add_argument("--target", choices=targets, default="cpu", help="default: cpu")
        parser.add_argument("--profile", default="default", help="of the target (default: default)")
        parser.add_argument("--dense", action="store_true", help="every tile that registers hold")
        parser.add_argument(
            "--only",
            nargs="+",
            choices=(TILES, *fit_single.CONSTANTS),
            help=f"default: all of the target; {TILES}: with Winograd's method, cpu",
        )
    else:
        axes = ", ".join(scale.AXES)
        parser.add_argument("axes", nargs="*", metavar="AXIS", help=f"of {axes}; default: all")
    return parser


def _add_sides(parser: argparse.ArgumentParser, names: Sequence[str], default: str) -> None:
    parser.add_argument("--sides", nargs="+", choices=names, help=f"default: {default}")
    parser.add_argument(
        "--target",
        choices=("cpu", *programs.TARGETS),
        default="cpu",
        help="whose kernels and device; default: cpu",
    )


def _known(parser: argparse.ArgumentParser, given: Sequence[str], names: Sequence[str]) -> None:
    unknown = sorted(set(given) - set(names))
    if unknown:
        parser.error(f"no such name: {', '.join(unknown)}; there are {', '.join(names)}")


def _operations(options: argparse.Namespace) -> dict[str, Any]:
    target = options.target
    cases = operations.cases(huge=options.huge, target=target)
    names = options.sides or list(operations.SIDES if target == "cpu" else operations.DEVICE_SIDES)
    kinds = list(dict.fromkeys(case.kind for case in cases.values()))
    _known(_parser("operations"), options.kinds, kinds)
    wanted = options.kinds or kinds
    chosen = {name: case for name, case in cases.items() if case.kind in wanted}
    refused = sides.install(names, _say, target)
    effort = Effort(rounds=options.rounds)
    whole = not options.kinds and "tinyedge" in names
    return operate.measure(chosen, names, effort, _say, split=whole, refused=refused, target=target)


def _models(options: argparse.Namespace) -> dict[str, Any]:
    _known(_parser("models"), options.models, list(cases.ALL))
    names = options.sides or list(models.DEFAULT[options.target])
    threads = options.threads or ([1, 2] if options.target == "cpu" else [1])
    refused = sides.install(names, _say, options.target)
    chosen = options.models or list(cases.ALL)
    effort = Effort(rounds=options.rounds, block=0.15, warm=0.2)
    return models.measure(chosen, names, threads, effort, _say, refused, options.target)


def _scale(options: argparse.Namespace) -> dict[str, Any]:
    _known(_parser("scale"), options.axes, list(scale.AXES))
    return scale.measure(options.axes or list(scale.AXES), Effort(rounds=options.rounds), _say)


def _fit(options: argparse.Namespace) -> dict[str, Any]:
    target, parser = options.target, _parser("fit")
    _known(parser, options.models, list(networks.NETWORKS))
    _known(parser, [options.profile], list(find_target(target).profiles))
    here = [name for name, each in fit_single.CONSTANTS.items() if each.target == target]
    here += [TILES] if target == "cpu" else []
    _known(parser, options.only or here, here)
    wanted, runs = options.only or here, 3 * options.rounds
    models = options.models or fit.MODELS
    result = fit.head(models, target, options.profile)
    if target != "cpu":
        result["versions"] = {"adapter": replayed.opened(target)[0].name}
    if TILES in wanted:
        result |= fit.measure(models, options.profile, options.dense, runs, _say)
    single = [name for name in fit_single.CONSTANTS if name in wanted]
    result["constants"] = {
        name: fit_single.measure(name, models, options.profile, runs, _say) for name in single
    }
    return result | {"machine": sides.machine()}


TILES = "tiles"
STUDIES = {"operations": _operations, "models": _models, "scale": _scale, "fit": _fit}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
