"""`tinyedge verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinyedge.cli.device import check_trust, device_option, opened, trust_option, variant_option
from tinyedge.cli.output import say, say_json, stages, table
from tinyedge.core.errors import InputError
from tinyedge.model import lacking, pick

if TYPE_CHECKING:
    from tinyedge.core.program.program import Program
    from tinyedge.export.bundle.reading import Bundle
    from tinyedge.export.verify.browser import Browser
    from tinyedge.export.verify.verify import Report


@click.command("verify")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--browser",
    is_flag=True,
    help="Run it in headless Chromium by its own tinyedge.js; with --fallback wasm, both programs.",
)
@click.option(
    "--against",
    multiple=True,
    metavar="[ENTRY=]MODEL.onnx",
    help="Compare fresh inputs with onnxruntime too; for each entry its own model.",
)
@click.option(
    "--nodes",
    is_flag=True,
    help="Compare the values of the model's nodes, of a bundle exported with --debug-goldens, and "
    "name the first that differs.",
)
@device_option
@variant_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    bundle: Path,
    browser: bool,
    against: tuple[str, ...],
    nodes: bool,
    device: str | None,
    variant: str | None,
    trust: bool,
    as_json: bool,
) -> int:
    """Run BUNDLE on its golden inputs and compare with the expected outputs it holds.

    Of a bundle with programs for several profiles all those that this machine can run; the others
    are named.

    Exits with 0 if all agree, 1 if not or the bundle is damaged, 3 if there is no device.
    """
    if browser and device is not None:
        raise click.UsageError("--device is for runs without --browser")
    if nodes and against:
        raise click.UsageError("--nodes compares with goldens, --against with a model")
    from tinyedge.export.bundle.reading import read
    from tinyedge.export.verify.verify import verify

    found = read(bundle)
    check_trust(found, trust)
    models = _models(found.program, against)
    names, not_run = _variants(found, variant)
    cases: list[dict[str, Any]] = []
    with stages() as progress:
        progress.report("running")
        if browser:
            where, cases = _in_browser(found, models, nodes)
        else:
            with opened(found.program, device) as running:
                where = running.name
                for name in names:
                    report = verify(bundle, running, models, variant=name, nodes=nodes)
                    cases += _cases(report, name)
    agrees = all(output["agrees"] for case in cases for output in case["outputs"])
    compared = [(case, output) for case in cases for output in case["outputs"]]
    differ = [(case, output) for case, output in compared if not output["agrees"]]
    first = {"node": differ[0][1]["name"] if differ else None} if nodes else {}
    if as_json:
        say_json({**first, "agrees": agrees, "device": where, "cases": cases, "not_run": not_run})
    else:
        several = tuple(key for key in ("variant", "program") if cases and key in cases[0])
        rows = [
            (
                *(case[key] for key in several),
                case["entry"],
                ", ".join(f"{name}={size}" for name, size in case["symbols"].items()) or "-",
                case["reference"],
                output["name"],
                f"{output['error']:.2g}",
                "agrees" if output["agrees"] else f"DIFFERS: {output['because']}",
            )
            for case, output in (differ if nodes else compared)
        ]
        if nodes:
            say(f"{len(compared)} nodes are compared; {len(differ)} differ")
        if differ or not nodes:
            table(
                (
                    *several,
                    "entry",
                    "sizes",
                    "against",
                    "node" if nodes else "output",
                    ">error",
                    "result",
                ),
                rows,
            )
        for name, lacks in not_run.items():
            say(f"not run here: variant {name}, which needs {', '.join(lacks)}")
        if differ and nodes:
            say(f"the first node that differs is {first['node']!r}")
        say(f"{bundle} {'agrees' if agrees else 'DIFFERS'} on {where}")
    return 0 if agrees else 1


def _variants(bundle: Bundle, wanted: str | None) -> tuple[list[str], dict[str, list[str]]]:
    """The variants to run, best first, or "" of a bundle without; what this machine lacks for the
    others, by name. Raises InputError, DeviceError where none can be run.
    """
    target = bundle.program.target
    best = pick(target, bundle.choices, wanted)
    if wanted is not None or not bundle.choices:
        return [best], {}
    lacks = {choice.name: lacking(target, choice) for choice in bundle.choices}
    names = [name for name, words in lacks.items() if not words]
    return names, {name: words for name, words in lacks.items() if words}


def _models(program: Program, against: tuple[str, ...]) -> dict[str, Path]:
    """The models to compare with by entry; without one, of the first."""
    models: dict[str, Path] = {}
    names = [entry.name for entry in program.entries]
    for text in against:
        entry, _, model = text.partition("=")
        if entry not in names:
            entry, model = names[0], text
        if entry in models:
            raise click.BadParameter(f"entry {entry!r} is given twice", param_hint="--against")
        models[entry] = Path(model)
    return models


def _in_browser(
    bundle: Bundle, models: dict[str, Path], nodes: bool
) -> tuple[str, list[dict[str, Any]]]:
    """The goldens by the page's own comparison; against a model, each sequence of runs in a fresh
    page. Where the bundle has a program for WebAssembly, once with each.
    """
    from tinyedge.export.bundle.reading import read_fallback
    from tinyedge.export.verify.browser import open_browser

    path = bundle.path
    if bundle.program.target != "webgpu":
        raise InputError(
            f"bundle {str(path)!r}",
            f"it is for {bundle.program.target}, which browsers do not run",
            id="verify.target",
            supported="bundles for webgpu",
            next="leave --browser out, or export with --target webgpu",
        )
    both = read_fallback(path) is not None
    chromium = open_browser()
    try:
        if not both:
            return "Chromium", _by_page(chromium, bundle, models, {}, nodes)
        cases = []
        for backend in ("webgpu", "wasm"):
            of_one = _by_page(chromium, bundle, models, {"backend": backend}, nodes)
            cases += [{"program": backend, **case} for case in of_one]
        return "Chromium, by WebGPU and by WebAssembly", cases
    finally:
        chromium.close()


def _by_page(
    chromium: Browser,
    bundle: Bundle,
    models: dict[str, Path],
    options: dict[str, str],
    nodes: bool,
) -> list[dict[str, Any]]:
    """What one of its programs gives in a page. options: of the page's `load`."""
    from tinyedge.export.verify.verify import goldens_of, verify

    path, goldens = bundle.path, goldens_of(bundle, nodes)
    if models or not goldens:
        sequence: list[Any] = []
        states: dict[str, Any] = {}

        def run(inputs: Any, entry: str = "", symbols: Any = None) -> Any:
            sequence.append(inputs)
            outputs, stats = chromium.run_in_page(path, sequence, entry=entry, options=options)
            states.update(stats["states"])
            return outputs[-1]

        report = verify(
            path,
            None,
            models,
            run=run,
            reset=sequence.clear,
            get_state=states.__getitem__,
            nodes=nodes,
        )
        return _cases(report)
    cases = []
    answers = chromium.verify(path, options, nodes)["cases"]
    for golden, answer in zip(goldens, answers, strict=True):
        outputs = [
            {
                "name": output["name"],
                "agrees": output["passed"],
                "error": output["error"],
                "because": f"{output['wrong']} wrong elements" if output["wrong"] else "",
            }
            for output in answer["outputs"]
        ]
        case = {"entry": golden.entry, "symbols": dict(golden.symbols), "outputs": outputs}
        cases.append({**case, "reference": golden.made})
    return cases


def _cases(report: Report, variant: str = "") -> list[dict[str, Any]]:
    named = {"variant": variant} if variant else {}
    return [
        {
            **named,
            "entry": case.entry,
            "symbols": dict(case.symbols),
            "reference": case.reference,
            "outputs": [
                {
                    "name": output.output,
                    "agrees": output.agrees,
                    "error": output.error,
                    "because": output.because,
                }
                for output in case.outputs
            ],
        }
        for case in report.cases
    ]
