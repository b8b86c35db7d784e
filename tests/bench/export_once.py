"""One cold export in a process of its own, run as a file by the tinyedge that PYTHONPATH names.

Its argument is JSON: {"model": ..., "target": ..., "out": ..., "dims": {...}}. Prints the CPU
seconds of each stage, with those of compilers that it called; `start` is the interpreter and what
it imports.
"""

import json
import resource
import sys
import time


def spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    given = json.loads(sys.argv[1])
    from tinyedge import export_onnx

    stages = {"start": spent()}
    current, since = "import", spent()

    def report(stage: str, done: int = 0, total: int = 0) -> None:
        nonlocal current, since
        if stage != current:
            now = spent()
            stages[current] = stages.get(current, 0.0) + now - since
            current, since = stage, now

    export_onnx(
        given["model"],
        target=given["target"],
        out=given["out"],
        dims=given["dims"],
        progress=report,
        force=True,
    )
    report("")
    print(json.dumps({"stages": stages, "total": spent()}))


if __name__ == "__main__":
    main()
