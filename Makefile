# The two commands of the README are `make demo` and `make test`; both set up what they need first.

# Vulkan drivers complain where a session has no such folder.
export XDG_RUNTIME_DIR ?= /tmp
# The theme's advertisement of its successor.
export NO_MKDOCS_2_WARNING := 1
# The tests start hundreds of processes of Python: its files are compiled once for all of them.
unexport PYTHONDONTWRITEBYTECODE

PYTHON := .venv/bin/python
# The tests of a file stay together: they share what is dear to make. A fifth of their time tests
# wait, for a browser or a program, so there is one process more than processors. WORKERS= runs one
# at a time.
WORKERS ?= -n $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4))) --dist loadfile

.PHONY: help setup demo test test-all bench train-digits check docs format clean

help:
	@echo "make demo      export a real model, verify it, run it in Python and in headless Chromium"
	@echo "make test      install what the tests need, then run the checks and the tests"
	@echo "make test-all  the same with the slow tests"
	@echo "make bench     every model beside onnxruntime-web in Chromium (long; MODELS=resnet18, FLAGS=--quick)"
	@echo "               for qcom: $(PYTHON) -m tests.bench.opencl, beside tinygrad on PoCL"
	@echo "               for cpu: $(PYTHON) -m tests.study, beside hand-written C and others"
	@echo "make train-digits  train a LeNet on digits with three seeds (examples/training)"
	@echo "make check     only the checks: ruff, mypy, tsc"
	@echo "make docs      build the documentation site: build/site/index.html"
	@echo "make format    format the Python files"
	@echo "make clean     remove caches and build outputs, keep .venv"

setup:
	@scripts/setup

demo: setup
	@$(PYTHON) scripts/demo.py

check: setup
	@scripts/check

test: check
	@$(PYTHON) -m pytest $(WORKERS) -m "not slow"

test-all: check
	@scripts/setup slow
	@$(PYTHON) -m pytest $(WORKERS)

bench: setup
	@$(PYTHON) -m tests.bench $(MODELS) $(FLAGS)

train-digits: setup
	@for seed in 0 1 2; do $(PYTHON) examples/training/digits.py --seed $$seed || exit 1; done

docs: setup
	@$(PYTHON) -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

format: setup
	@.venv/bin/ruff format
	@.venv/bin/ruff check --fix

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
