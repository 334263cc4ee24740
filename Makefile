# Everything one does with a checkout. Only Python 3.11 or later is needed beforehand.

PYTHON ?= python3
BIN := .venv/bin
# Most of the tests wait for a service. Each process starts its own, so not more than a few.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: .venv/run.stamp ## Deduplicate examples/documents.jsonl into .run/annotated.jsonl
	@mkdir -p .run
	$(BIN)/stream-dedup run examples/documents.jsonl -o .run/annotated.jsonl

.PHONY: test
test: check services ## Check the code, then run all tests on real services
	$(BIN)/python -m pytest $(PARALLEL)

.PHONY: check
check: .venv/dev.stamp ## Lint, format, types and the import contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: .venv/dev.stamp ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: unit
unit: .venv/dev.stamp ## Run the tests that need no service
	$(BIN)/python -m pytest -m "not integration and not fault"

.PHONY: integration
integration: .venv/dev.stamp services ## Run the tests on real services
	$(BIN)/python -m pytest -m integration

.PHONY: fault
fault: .venv/dev.stamp services ## Run the tests that break services and workers
	$(BIN)/python -m pytest -m fault

.PHONY: bench
bench: .venv/dev.stamp services ## Run every benchmark (minutes); writes benchmarks/results/<date>.md
	$(BIN)/python -m benchmarks

.PHONY: bench-full
bench-full: .venv/dev.stamp services ## The same on far more documents, indexes of 10 million (hours)
	$(BIN)/python -m benchmarks --full

.PHONY: plan-check
plan-check: .venv/dev.stamp services ## Hold the planner against Redis; ORIGINALS=1e7 for long runs
	$(BIN)/python -m benchmarks.plan_check $(ORIGINALS)

.PHONY: stress
stress: .venv/dev.stamp services ## Decide 200,000 documents on a Redis Cluster at once, audit it (minutes)
	$(BIN)/python -m benchmarks.stress

.PHONY: services
services: ## Install what tests need to start Kafka, Redis and Prometheus (apt, Maven)
	@ops/services/install.sh

.PHONY: up
up: ## Start the whole pipeline in Docker; see ops/runbook.md
	docker compose up --build --detach --wait

.PHONY: down
down: ## Stop it; the data stays
	docker compose down

.PHONY: clean
clean: ## Remove the virtual environment, the services' files and all caches
	rm -rf .venv .venv-peers .services .run dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/%.stamp: pyproject.toml
	@PYTHON=$(PYTHON) ops/services/venv.sh $*
