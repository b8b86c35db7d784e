"""The command line: the only reader of argv. One file a command, loaded when it is called."""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from tinyedge.cli import streams
from tinyedge.cli.output import complain, complain_text, one_line
from tinyedge.core.errors import DeviceError, InternalError, TinyedgeError
from tinyedge.core.files import FULL, next_place

OK, WRONG, USAGE, NO_DEVICE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 130

# Name, module of tinyedge.cli, and what it does: help needs no import of a command.
COMMANDS = {
    "export": ("export", "Compile model.onnx into a bundle."),
    "inspect": ("inspect", "Show what a model or a bundle holds."),
    "verify": ("verify", "Compare a bundle's results with its goldens."),
    "run": ("run", "Run a bundle on arrays from files."),
    "bench": ("bench", "Measure a bundle: latency, time per kernel."),
    "explain": ("explain", "Print a model's intermediate form after any stage."),
    "serve": ("serve", "Serve the page that runs a bundle in the browser."),
    "devices": ("devices", "List the devices of every target."),
}


class Commands(click.Group):
    """The group of commands; a command's module is imported when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"tinyedge.cli.{COMMANDS[name][0]}")
        command: click.Command = module.command
        if all(option.name != "debug" for option in command.params):
            command.params.append(debug_option())
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def debug_option() -> click.Option:
    """--debug, which every command takes as well."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            context.find_root().meta["tinyedge.debug"] = True

    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Show a traceback with an error.",
    )


@click.command(cls=Commands, params=[debug_option()])
@click.version_option(package_name="tinyedge", prog_name="tinyedge")
def tinyedge() -> None:
    """Compile ONNX models into bundles of kernels that small runtimes replay.

    Results go to standard output, progress and errors to standard error.

    \b
    Exit codes:
      0    all is well
      1    a mismatch, or a wrong input: a model, a bundle, an array
      2    wrong usage of the command line
      3    no device, or it failed
      4    a bug of tinyedge
      130  interrupted
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    streams.prepare()
    code = execute(arguments)
    if (failure := streams.flush()) and code == OK:
        complain_text(_unwritten(failure))
        code = WRONG
    sys.exit(code)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are printed, never raised."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    notes = _Notes(logging.WARNING)
    log = logging.getLogger("tinyedge")
    log.addHandler(notes)
    try:
        result: Any = tinyedge.main(given, prog_name="tinyedge", standalone_mode=False)
        return int(result) if isinstance(result, int) else OK
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    except TinyedgeError as error:
        return _failed(error, str(error), code_of(error), debug)
    except streams.Unwritten as error:
        return _failed(error, _unwritten(error), WRONG, debug)
    except (OSError, MemoryError) as error:
        text = f"error: {one_line(str(error) or type(error).__name__)}"
        if isinstance(error, OSError) and error.errno in FULL:
            elsewhere = f"choose another folder for temporary files, which go to {_temporary()}"
            text += f"\n  next       {next_place(error, elsewhere)}"
        return _failed(error, text, WRONG, debug)
    except Exception as error:
        text = (
            f"InternalError: {type(error).__name__}: {one_line(str(error))} [internal]\n"
            "  next       report this bug with the model and the command; --debug shows where"
        )
        return _failed(error, text, BUG, debug)
    finally:
        log.removeHandler(notes)


class _Notes(logging.Handler):
    """The package's warnings, as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(f"note: {record.getMessage()}")


def code_of(error: TinyedgeError) -> int:
    """The exit code of an error."""
    if isinstance(error, InternalError) or error.family == "bug":
        return BUG
    if isinstance(error, DeviceError) or error.family == "device":
        return NO_DEVICE
    if error.id.startswith("option."):  # what options say, alone or together, can never be done
        return USAGE
    return WRONG


def _unwritten(failure: OSError) -> str:
    return f"error: {failure}\n  next       {next_place(failure, 'write it to another place')}"


def _temporary() -> str:
    try:
        return f"{tempfile.gettempdir()}, or where TMPDIR says"
    except OSError:
        return "the folder that TMPDIR names"


def _failed(error: BaseException, text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    complain_text(text)
    return code
