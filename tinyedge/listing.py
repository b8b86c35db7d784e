"""What devices the targets have, each asked in a process of its own.

A driver that is broken may do anything when it is loaded: raise, end its process, or wait for ever.
What it does here befalls its own target's list alone, which then says so.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tinyedge.core.errors import DeviceError
from tinyedge.core.program.device import DeviceInfo, device_module, one_line

ANSWER = "tinyedge devices: "  # begins the line that counts of what a process and its driver print
SECONDS = 60  # that a driver may take
REPAIR = "install the target's driver, or its package for Python, again"


@dataclass(frozen=True)
class Listing:
    """The devices of a target, the preferred one first; if there are none, why and what to do."""

    devices: tuple[DeviceInfo, ...] = ()
    because: str = ""
    next: str = ""


def listed(targets: Sequence[str]) -> dict[str, Listing]:
    """The devices of some targets, all asked at once."""
    running = {target: _start(target) for target in targets}
    try:
        return {target: _answer(process) for target, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def listing(target: str) -> Listing:
    """The devices of a target, asked in this process."""
    try:
        module = device_module(target)
        if found := module.devices():
            return Listing(tuple(found))
        module.open().close()  # says why there is none
    except DeviceError as error:
        return Listing(because=error.because, next=error.next)
    except Exception as error:
        return Listing(because=f"{type(error).__name__}: {one_line(error)}", next=REPAIR)
    return Listing()


def tell(target: str) -> None:
    """Print the listing of a target for the process that asks."""
    print(f"\n{ANSWER}{json.dumps(asdict(listing(target)))}", flush=True)


def _start(target: str) -> subprocess.Popen[str]:
    # Modules are found where they are for this process, not in the current folder.
    begin = f"import sys; sys.path[:] = {sys.path!r}"
    return subprocess.Popen(
        [sys.executable, "-I", "-c", f"{begin}; import {__name__} as it; it.tell({target!r})"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the process that waits for this one
    )


def _answer(process: subprocess.Popen[str]) -> Listing:
    try:
        text, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Listing(because=f"its driver does not answer within {SECONDS} s", next=REPAIR)
    answers = [line for line in text.splitlines() if line.startswith(ANSWER)]
    if not answers:
        return Listing(because=f"its driver ends the process {_end(process)}", next=REPAIR)
    found = json.loads(answers[-1].removeprefix(ANSWER))
    devices = tuple(DeviceInfo(**each) for each in found.pop("devices"))
    return Listing(devices, **found)


def _end(process: subprocess.Popen[str]) -> str:
    if process.returncode >= 0:
        return f"with status {process.returncode}"
    try:
        return f"by signal {signal.Signals(-process.returncode).name}"
    except ValueError:
        return f"by signal {-process.returncode}"
