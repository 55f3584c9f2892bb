# `make demo` and `make test` set everything up themselves; the rest is for daily work.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo flywheel test test-all check format up down status bench bench-tables docs clean

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# One torch thread per process, and no spinning while threads wait: both are several times slower on
# contended cores.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DO_NOT_TRACK := 1
export DVC_NO_ANALYTICS := 1
export GX_ANALYTICS_ENABLED := false
export HF_HUB_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false
# Some images switch bytecode caches off; every process would compile torch's imports again.
export PYTHONDONTWRITEBYTECODE :=

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

setup: $(INSTALLED)  ## install everything into .venv (done by the others when needed)

$(INSTALLED): requirements.lock pyproject.toml
	@echo "== installing into $(VENV) (about 10 GB unpacked, one to a few minutes)"
	@infra/venv.sh $(VENV) $(PYTHON)
	$(BIN)/uv pip sync --quiet --python $(BIN)/python requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

demo: setup  ## from robot data to a promoted policy, with report and videos (minutes)
	$(BIN)/python -m infra.demo

flywheel: setup  ## deploy a policy to simulated robots, and train it on what it fails at (minutes)
	$(BIN)/python -m infra.flywheel

# Several processes, because tests often wait; each needs 4 GB. Threads that wait let others work.
TESTERS ?= 3
PYTEST = OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 $(BIN)/python -m pytest -n $(TESTERS) --dist loadfile \
	--no-loadscope-reorder --durations=10

# Files of tests are synced to no disk where memory can hold them: a third of the time of the registry's.
IN_MEMORY = $$(df -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')

test: setup  ## the tests that CI runs (minutes)
	PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) $(PYTEST) -m "not slow"

test-all: setup  ## every test, the slow ones too
	$(PYTEST)

check: setup  ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/repository/test_layers.py

format: setup  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

up: setup  ## start Prefect server, MLflow server and a worker on 127.0.0.1, and deploy the flows
	$(BIN)/python -m infra.services up

down: setup  ## stop what `make up` started
	$(BIN)/python -m infra.services down

status: setup  ## are the services up?
	$(BIN)/python -m infra.services status

bench: setup  ## measure the numbers of docs/benchmarks (hours; python -m benchmarks.rl ID for one)
	$(BIN)/python -m benchmarks.skeleton
	$(BIN)/python -m benchmarks.rl

bench-tables: setup  ## turn docs/benchmarks/*.json into the tables of README and docs
	$(BIN)/python -m benchmarks.tables

docs: setup  ## build the documentation into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html, or with search: $(BIN)/python -m mkdocs serve, then http://127.0.0.1:8000"

clean:  ## stop the services and remove what can be made again (keeps .venv and datasets/raw)
	test ! -x $(BIN)/python || $(BIN)/python -m infra.services down
	rm -rf .rrf build *.egg-info .pytest_cache .ruff_cache
	test ! -d datasets || find datasets -mindepth 1 -maxdepth 1 ! -name raw -exec rm -rf {} +
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
