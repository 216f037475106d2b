# Two commands on a fresh machine: `make demo` and `make test`. The others are parts of them.
.PHONY: setup demo test unit lint lab-up lab-down bench lock
.DEFAULT_GOAL := help
NODES ?= 3
FOR :=
COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --extra build pyproject.toml
BIN := .venv/bin
# Tests that share a virtual rack are a group for one worker; they take longest and begin first. A third worker, which
# means a third rack at a time, needs four cores and 14 GiB.
WORKERS := -n $(shell [ $$(nproc) -ge 4 ] && [ $$(awk '/MemTotal/ {print int($$2 / 1048576)}' /proc/meminfo) -ge 14 ] \
	&& echo 3 || echo 2) --dist loadscope --no-loadscope-reorder

help: ## Say what there is to make
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: ## Install what a run needs: system packages, and the locked Python packages into .venv
	@scripts/setup $(FOR)

# Targets hand their variables on to what they need, so this is what set-up sees. Only tests need Node.js and the
# packages of the extra dev.
test unit lint: FOR := tests

demo: setup ## Build a virtual rack, deploy it twice, verify it, reboot a node, verify again (NODES=8 for eight)
	@NODES=$(NODES) scripts/demo

test: setup lint ## All tests: unit, cases, emulator, and the virtual rack
	@$(BIN)/pytest $(WORKERS)

unit: setup ## The tests that need no virtual rack
	@$(BIN)/pytest -m 'not lab' $(WORKERS)

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
