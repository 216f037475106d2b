# Two commands on a fresh machine: `make demo` and `make test`. The others are parts of them.
.PHONY: setup demo test soak unit lint lab-up lab-down bench lock
.DEFAULT_GOAL := help
NODES ?= 3
FOR :=
COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --extra build pyproject.toml
BIN := .venv/bin
# The tests of a file are one worker's. A third worker, which means a third rack at a time, needs four cores and 14 GiB.
WORKERS := -n $(shell [ $$(nproc) -ge 4 ] && [ $$(awk '/MemTotal/ {print int($$2 / 1048576)}' /proc/meminfo) -ge 14 ] \
	&& echo 3 || echo 2) --dist loadfile --no-loadscope-reorder
# Each tier ends with its slowest tests.
SLOWEST := --durations=20 --durations-min=1

help: ## Say what there is to make
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: ## Install what a run needs: system packages, and the locked Python packages into .venv
	@scripts/setup $(FOR)

# Targets hand their variables on to what they need, so this is what set-up sees. Only tests need Node.js and the
# packages of the extra dev.
test soak unit lint: FOR := tests

demo: setup ## Build a virtual rack, deploy it twice, verify it, reboot a node, verify again (NODES=8 for eight)
	@NODES=$(NODES) scripts/demo

test: setup lint ## What guards every promise: unit, cases, emulator, the virtual rack, and a tenth of the soak tests
	@$(BIN)/pytest $(WORKERS) $(SLOWEST)

soak: setup ## All soak tests: the long rest, a tenth of which is part of `make test`
	@$(BIN)/pytest -m soak $(WORKERS) $(SLOWEST)

unit: setup ## The part of `make test` that needs no virtual rack
	@$(BIN)/pytest -m 'not lab' $(WORKERS) $(SLOWEST)

lint: setup ## Style, types, and who may import whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

lab-up: setup ## Start a virtual rack and leave it running
	@$(BIN)/sparkrack lab up --nodes $(NODES)

lab-down: setup ## End it
	@$(BIN)/sparkrack lab down

bench: setup ## Compare with Ansible, mitogen and stock pyinfra on local targets (root; takes hours)
	@$(BIN)/python -m bench --docs

# The second has all of the first, in the same versions.
lock: ## Renew requirements.lock and requirements-dev.lock from pyproject.toml (needs uv)
	@$(COMPILE) -o requirements.lock
	@$(COMPILE) --extra dev --constraint requirements.lock -o requirements-dev.lock
