"""ONNX's own backend tests: each is passed or refused by name, on every target.

    python -m tests.export.backend [PATTERN]             # by the reference evaluator, in seconds
    python -m tests.export.backend --on cpu [PATTERN]    # compiled for a target, run on its device
    python -m tests.export.backend --on cpu --front      # exported, loaded and run, one by one
    python -m tests.export.backend --symbolic [PATTERN]  # with symbolic input sizes
    python -m tests.export.backend --update [PATTERN]    # everywhere, and expectations.json anew

Each prints what does not pass and why, then totals and reasons; of a second place, the reasons that
are new or more frequent. `--on` takes several places: reference, cpu, webgpu, qcom, cuda (on the
processor where there is no GPU), chromium.

`expectations.json` says what every case does: it passes (some only with inputs as constants,
because a shape depends on their values) or is refused, and why; by place only where places differ.
Tests compare with it exactly, so it is made anew whenever a case starts to pass or to be refused.
hour on two idle processors, or seconds with a PATTERN or `--on`.
"""
