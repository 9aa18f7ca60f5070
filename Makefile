# People and CI call the same targets. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

PY := .venv/bin/python
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -q --durations=5
USE := .venv/.installed
DEV := .venv/.installed-dev

.PHONY: help demo lab dashboard test bench soak lock install \
	lint types layers unit numerics gpu cluster js notebooks browser package

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(USE) ## train a GPT on two ranks, headless, and print what happened
	@$(PY) -m workbench run notebooks/01-quickstart.ipynb

lab: $(USE) ## open the quickstart in JupyterLab
	@$(PY) -m workbench lab

dashboard: $(USE) ## serve the team dashboard
	@$(PY) -m workbench dashboard

test: $(DEV) ## run every check and test, cheapest first
	@.ci/system
	@$(PY) .ci/steps.py

install: $(DEV) ## make .venv with all that development needs

lock: $(DEV) ## write constraints.txt anew
	@.ci/lock

$(USE): pyproject.toml constraints.txt
	@.ci/install
	@touch $@

$(DEV): pyproject.toml constraints.txt
	@.ci/install dev
	@touch $@ $(USE)

lint: $(DEV)
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/codespell workbench widgets tests notebooks README.md CONTRIBUTING.md
	@.venv/bin/nbstripout --verify notebooks/*.ipynb

types: $(DEV)
	@.venv/bin/mypy

layers: $(DEV)
	@.venv/bin/lint-imports --no-logo

unit: $(DEV)
	@$(PYTEST) -n 2 tests/unit
	@$(PYTEST) --doctest-modules workbench/units.py workbench/model workbench/hardware workbench/layout workbench/planner

numerics: $(DEV)
	@$(PYTEST) --doctest-modules workbench/training/schedule.py tests/numerics

gpu: $(DEV)
	@$(PYTEST) tests/gpu

cluster: $(DEV)
	@$(PYTEST) tests/cluster

js: $(DEV)
	@$(PYTEST) tests/js

notebooks: $(DEV)
	@$(PYTEST) tests/notebooks

browser: $(DEV)
	@$(PYTEST) tests/browser

package: $(DEV)
	@$(PYTEST) tests/package

bench: $(DEV) ## measure speed and cost; prints JSON
	@$(PY) -m tests.bench

soak: $(DEV) ## layouts on 8 and 16 ranks; prints JSON, some minutes
	@$(PY) -m tests.numerics.soak_layouts
