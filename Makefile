# All set-up happens here: Python 3.11+ and make are enough. Start with `make demo`, then `make test`.
PYTHON ?= python3
PY     := .venv/bin/python
BASE   := .venv/.installed-base
DEV    := .venv/.installed-dev
GPU    := .venv/.installed-gpu
PYTEST := $(PY) -m pytest -n auto --dist worksteal
VERIFY := build/ascend-verify
# An interpreter that has what tools/ascend_verify/requirements.txt names.
WHEEL  ?= $(VERIFY)/venv/bin/python

.PHONY: help setup demo test fast simulate gpu sanitize golden check format lint types imports budget docs bench clean \
        ascend-verify

help:           ## this list
	@sed -n 's/^\([a-z-]*\): *[^#]*## /  make \1: /p' Makefile

# One stamp for each set of packages; all share one environment. tools/environment.py says what a set holds.
.venv/.installed-%: pyproject.toml tools/environment.py
	@$(PYTHON) tools/environment.py $*

setup: $(DEV)   ## the environment for development, in .venv

demo: $(BASE)   ## two programs that show what this is; needs no GPU and no torch
	$(PY) examples/quickstart.py
	$(PY) examples/alloc_scopes.py

test: $(DEV)    ## every test that needs no GPU
	$(PYTEST)

fast: $(DEV)    ## the fast half of the tests
	$(PYTEST) -m "not slow and not gpu"

simulate: $(DEV) ## the long sweeps of schedules on the simulators
	$(PYTEST) -m simulate --simulate

gpu: $(GPU)     ## the tests that need a CUDA device; no device is a failure here
	$(PY) -m pytest -m gpu --require-gpu

sanitize: $(GPU) ## compute-sanitizer over examples and random kernels, on a device
	$(PY) tools/sanitize.py

cubins: $(DEV)  ## every kernel of the examples as machine code of every NVIDIA chip; needs no GPU
	$(PY) tools/cubins.py

golden: $(DEV)  ## rewrite the golden files, and say which changed
	$(PYTEST) --update-golden
	git --no-pager diff --stat -- tests/golden

check: $(DEV)   ## the five gates below; all of them run, even when one fails
	@$(MAKE) --no-print-directory --keep-going format lint types imports budget

format: $(DEV)
	$(PY) -m ruff format --check --quiet .
lint: $(DEV)
	$(PY) -m ruff check --quiet .
types: $(DEV)
	$(PY) -m basedpyright
imports: $(DEV)
	PYTHONPATH=src .venv/bin/lint-imports --no-logo
budget: $(DEV)
	$(PY) tools/budget.py

docs: $(BASE)   ## write the pages of docs/ that come from tables in the source
	$(PY) tools/docs.py

bench: $(BASE)  ## time the emulator
	$(PY) benchmarks/emulator.py

ascend-verify: $(BASE) $(if $(filter $(VERIFY)/%,$(WHEEL)),$(VERIFY)/.installed) ## compare the C++ for Ascend with the `tilelang` wheel's (installed in build/; needs g++)
	PYTHONPATH=tools:tests $(PY) -m ascend_verify $(WHEEL) $(VERIFY)

$(VERIFY)/.installed: tools/ascend_verify/requirements.txt
	$(PYTHON) -m venv $(VERIFY)/venv
	$(VERIFY)/venv/bin/pip install --quiet -r $<
	touch $@

clean:          ## remove what the tools left; .venv stays
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
