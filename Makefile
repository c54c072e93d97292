# `make` or `make help` lists the targets. Each target sets up what it needs, once, in $(VENV).

PYTHON ?= python3
VENV ?= .venv
# Processes of tests that compute, one for each core; two more run the tests that wait for real time.
JOBS ?= 2
FUZZ_SECONDS ?= 60
BIN := $(VENV)/bin
# Modules that benchmarks import.
BENCH_PARTS := bench/markets.py bench/lake_engines.py bench/lake_market.py bench/scratch.py

# tests/conftest.py says which tests run in which process.
PYTEST := $(BIN)/pytest -n $(shell expr $(JOBS) + 2)
# A marker that nothing carries yet is no failure (pytest says 5); anything else is.
NONE_IS_FINE := || { status=$$?; [ $$status -eq 5 ] && echo "No test carries this marker."; }

# Without bytecode every process compiles every module that it imports; tests and markets start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # Every target installs into the same environment.
.PHONY: help setup demo test test-long check soak bench fuzz fuzz-many docs lock clean

help: ## List the targets
	@echo 'Isocast: make TARGET, from a fresh clone, with Python 3.11 or newer, make, git and a network.'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="..."       passed on by demo, test, test-long, soak, bench and fuzz-many'
	@echo '  JOBS=$(JOBS)           cores for tests'
	@echo '  PYTHON=$(PYTHON)   the interpreter that makes $(VENV)'
	@echo '  FUZZ_SECONDS=$(FUZZ_SECONDS)  how long each fuzz target runs'

## ---- what people run

setup: $(VENV)/.installed-dev ## Make .venv with everything that demo, test and check need

demo: $(VENV)/.installed-run ## Run a whole market as processes of this machine, live in the terminal
	@$(BIN)/isocast demo $(ARGS) || { status=$$?; [ $$status -eq 141 ] || exit $$status; } # 141: `make demo | head`

test: $(VENV)/.installed-dev $(VENV)/.prepared ## Run the tests (some 9 minutes on 2 cores)
	$(PYTEST) -m 'not long and not soak' $(ARGS)

test-long: $(VENV)/.installed-dev $(VENV)/.prepared ## Run the long tests (some 20 minutes on 2 cores)
	$(PYTEST) -m long --timeout 2400 $(ARGS) $(NONE_IS_FINE)

check: $(VENV)/.installed-dev ## Lint, check formatting, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

soak: $(VENV)/.installed-dev ## Run the endurance and rare-event tests (hours)
	$(PYTEST) -m soak --timeout 0 $(ARGS) $(NONE_IS_FINE)

bench: $(VENV)/.installed-run $(VENV)/.prepared ## Run every benchmark in bench/
	@for script in $(sort $(filter-out $(BENCH_PARTS),$(wildcard bench/*.py))); do \
	    echo "== $$script"; $(BIN)/python $$script $(ARGS) || exit 1; \
	done

fuzz: $(VENV)/.installed-fuzz ## Fuzz every decoder, FUZZ_SECONDS each
	@for target in $(sort $(wildcard tests/fuzz/fuzz_*.py)); do \
	    echo "== $$target"; $(BIN)/python $$target -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

fuzz-many: $(VENV)/.installed-dev ## Send 10 million hostile inputs into every decoder and service; --list tells how long
	@$(BIN)/python -m tests.fuzz.many $(ARGS)

docs: $(VENV)/.installed-docs ## Build the documentation into site/
	$(BIN)/zensical build --strict
	@echo 'Built: site/index.html'

lock: $(VENV)/.made ## Renew requirements/*.txt after a change of dependencies (UPGRADE=1: newest versions)
	$(COMPILE) -o requirements/uv.txt requirements/uv.in
	$(COMPILE) -o requirements/dev.txt --extra build --extra dev pyproject.toml
	$(COMPILE) -o requirements/run.txt --extra build --extra accounts --extra spark --extra websocket --extra zstd -c requirements/dev.txt pyproject.toml
	$(COMPILE) -o requirements/docs.txt --extra build --extra docs -c requirements/dev.txt pyproject.toml
	$(COMPILE) -o requirements/fuzz.txt --extra build --extra fuzz -c requirements/dev.txt pyproject.toml

clean: ## Remove .venv and everything built
	rm -rf $(VENV) site dist build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

## ---- how the environment comes about: a stamp for each lock, so that a second run starts at once

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

$(VENV)/.made: tools/venv
	@tools/venv create $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.installed-%: requirements/%.txt pyproject.toml $(VENV)/.made
	@tools/venv install $(VENV) $<
	@touch $@

# Spark starts in 60 % of the time from then on. It is no failure if it cannot be: it only starts later.
$(VENV)/.prepared: requirements/run.txt
	@echo 'Preparing Spark, once ...'
	@$(BIN)/isocast lake prepare || true
	@touch $@
