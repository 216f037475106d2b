# Two commands on a fresh machine: `make demo` and `make test`. The others are parts of them.
.PHONY: setup demo test soak unit engines lint compiled lab-up lab-down bench lock
.DEFAULT_GOAL := help
NODES ?= 3
FOR :=
COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --extra build pyproject.toml
BIN := .venv/bin
# Python keeps what it has compiled: the tests start it some thousand times.
unexport PYTHONDONTWRITEBYTECODE
# The tests of a file are one worker's; two or three workers have a virtual rack (tests/scheduling.py).
WORKERS := -n auto --dist loadfile --no-loadscope-reorder
# Templates of scripts are checked as rendered: tests/unit/test_shell_templates.py
SHELL_FILES := $(filter-out %.py %/__pycache__,$(wildcard scripts/*)) .ci/run lab/*.sh lab/image/*.sh lab/image/boot-node $(wildcard */files/*.sh */*/files/*.sh)

help: ## Say what there is to make
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: ## Install what a run needs: system packages, and Python's into .venv
	@NODES=$(NODES) scripts/setup $(FOR)
	$(if $(filter setup,$(MAKECMDGOALS)),@echo "Next: . .venv/bin/activate && sparkrack init")

# Targets hand their variables on to what they need, so this is what set-up sees. Only tests need Node.js, and only they
# and linters the packages of the extra dev; only soak tests need vLLM itself.
demo lab-up: FOR := demo
lint: FOR := lint
test unit engines: FOR := tests
soak: FOR := soak

demo: setup ## Try all of it in a virtual rack of three nodes (NODES=8: eight)
	@NODES=$(NODES) scripts/demo

test: setup compiled lint ## Every tier of the tests, and a part of the soak tests
	@$(BIN)/python -m tests.run_twice $(WORKERS)

soak: setup ## All soak tests: the long rest, a part of which is in `make test`
	@$(BIN)/pytest -m soak $(WORKERS)

unit: setup ## The part of `make test` that needs no virtual rack
	@$(BIN)/pytest -m 'not lab' $(WORKERS)

engines: setup ## Compare the table of engine options with parsers of real releases
	@$(BIN)/pytest -m 'soak or not soak' tests/unit/serving/engines/test_real_parsers.py

# pytest compiles what it collects, and keeps that. In a new clone each worker would do so at once; mypy leaves a core free.
compiled: setup
	@$(BIN)/pytest -qq --collect-only -p no:cacheprovider > /dev/null 2>&1 < /dev/null &

lint: setup ## Style, types, who may import whom, and shell scripts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/shellcheck $(SHELL_FILES)

lab-up: setup ## Start a virtual rack and leave it running
	@$(BIN)/sparkrack lab up --nodes $(NODES)

lab-down: setup ## End it
	@$(BIN)/sparkrack lab down

bench: setup ## Compare with Ansible, mitogen and stock pyinfra (root; takes hours)
	@$(BIN)/python -m benchmarks --docs

# The second has all of the first, in the same versions. The others are environments of their own.
lock: ## Renew the lock files in requirements/ from pyproject.toml (needs uv)
	@$(COMPILE) -o requirements/run.lock
	@$(COMPILE) --extra dev --constraint requirements/run.lock -o requirements/dev.lock
	@uv pip compile --quiet --universal --generate-hashes --python-version 3.11 requirements/engines.in -o requirements/engines.lock
	@$(BIN)/python scripts/conformance_engine.py lock
