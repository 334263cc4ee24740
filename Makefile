# Everything one does with a checkout. Only Python 3.11 or later is needed beforehand.

PYTHON ?= python3
BIN := .venv/bin
# Most of the tests wait for a service: half of the time two processes leave two cores idle. Each
# starts services of its own, so not more than a few.
PARALLEL := --numprocesses $$(( $$(nproc) < 4 ? $$(nproc) + 1 : 4 )) --dist loadfile

# What tells of vulnerabilities: pypi or osv.
SERVICE := pypi

# For how long each harness is fuzzed.
SECONDS := 600

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
	$(BIN)/python -m pytest -m "not integration and not fault and not browser"

.PHONY: integration
integration: .venv/dev.stamp services ## Run the tests on real services
	$(BIN)/python -m pytest -m integration

# What uses private parts of libraries, or leans on how they behave. Old versions warn of new ones.
OF_VERSIONS := $(addprefix tests/,$(addsuffix .py, \
	$(addprefix unit/test_,clients confluent_publish exports fingerprints http_limits kafka_publish \
		kafka_records kafka_transport review_guard serve settings) \
	contract/test_metrics \
	$(addprefix integration/test_,index_counts rebuild stalled)))
.PHONY: test-lowest test-newest
test-lowest: ## Run narrow tests with the lowest versions that pyproject.toml allows
test-newest: ## The same with the newest
test-lowest test-newest: test-%: .venv/dev.stamp services
	@ops/services/versions.sh $*
	.venv-$*/bin/python -m pytest $(PARALLEL) $(OF_VERSIONS) -W ignore::DeprecationWarning \
		-W ignore::PendingDeprecationWarning

.PHONY: fault-tests
fault-tests: .venv/dev.stamp services ## Run the tests that break services and workers
	$(BIN)/python -m pytest -m fault

# A run can be made again: make fault SEED=7; FLAGS="--report figures.md" keeps the figures.
SEED ?= $(shell date +%s)
.PHONY: fault
fault: .venv/dev.stamp services ## Break brokers, Redis and workers under load, check all (10 minutes); SEED=N
	$(BIN)/python -m tests.campaign --seed $(SEED) $(FLAGS)

.PHONY: fault-long
fault-long: .venv/dev.stamp services ## The same with 2 million documents and 500 faults (an hour or more); SEED=N
	$(BIN)/python -m tests.campaign --seed $(SEED) --documents 2000000 --faults 500 --long $(FLAGS)

.PHONY: browser
browser: .venv/dev.stamp services ## Run the tests that look at the review page in Chromium
	$(BIN)/python -m pytest -m browser

.PHONY: fuzz
fuzz: .venv/dev.stamp ## Fuzz decoder, annotation, normaliser, settings and HTTP; SECONDS=3600 for each
	@set -e; for harness in decoder splice normaliser settings http; do \
		$(BIN)/python -m tests.hostile.fuzz $$harness $(SECONDS); done
	FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest tests/hostile/test_described.py

.PHONY: bench
bench: .venv/dev.stamp services ## Run every benchmark (minutes); writes benchmarks/results/<date>.md, and the pages
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.summary --write

.PHONY: bench-full
bench-full: .venv/dev.stamp services ## The same on far more documents, indexes of 10 million (hours)
	$(BIN)/python -m benchmarks --full

DATE := $(shell date -u +%Y-%m-%d)
.PHONY: figures
figures: .venv/dev.stamp services ## Measure beside other libraries, write figures into the pages; DATA=FOLDER
	@test -n "$(DATA)" || { echo "make figures DATA=FOLDER, with *.jsonl or *.jsonl.gz"; exit 2; }
	$(BIN)/python -m benchmarks fingerprint in_memory redis_peers real_text --data $(DATA) \
		--output benchmarks/results/$(DATE)-peers.md
	$(BIN)/python -m benchmarks.quality $(DATA) --output benchmarks/quality/results-$(DATE).md
	$(BIN)/python -m benchmarks.summary --write

.PHONY: plan-check
plan-check: .venv/dev.stamp services ## Hold the planner against Redis; ORIGINALS=1e7 for long runs
	$(BIN)/python -m benchmarks.plan_check $(ORIGINALS)

SEEDS ?= 1000000
.PHONY: simulate
simulate: .venv/dev.stamp ## Run workers in a simulated world, a million seeds (hours); SEEDS=N for fewer
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

MUTANTS ?= 300
.PHONY: mutation
mutation: .venv/dev.stamp services ## Put small mistakes into claims and loop, see if tests notice; MUTANTS=all for all
	$(BIN)/python -m tests.mutation --mutants $(MUTANTS) \
		--output benchmarks/results/$$(date -u +%Y-%m-%d)-mutation.md

.PHONY: stress
stress: .venv/dev.stamp services ## Decide 200,000 documents on a Redis Cluster at once, audit it (minutes)
	$(BIN)/python -m benchmarks.stress

.PHONY: overload
overload: .venv/dev.stamp services ## Send ten times what a worker can take; memory, rebalances, draining (minutes)
	$(BIN)/python -m benchmarks.overload

MINUTES ?= 60
.PHONY: soak
soak: .venv/dev.stamp services ## Mixed traffic, lost connections, rebalances: does anything grow? MINUTES=60
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

.PHONY: docs
docs: .venv/dev.stamp ## Build the documentation site into .site; a warning is an error
	$(BIN)/sphinx-build --fail-on-warning --quiet -c docs . .site
	@echo "Open .site/docs/index.html"

.PHONY: services
services: ## Install what tests need to start Kafka, Redis and Prometheus (apt, Maven)
	@ops/services/install.sh

.PHONY: lock
lock: .venv/dev.stamp ## Lock the newest versions that the image may be built with, with hashes
	@ops/deploy/lock.sh

.PHONY: audit
audit: .venv/dev.stamp ## Look for known vulnerabilities in what is locked; SERVICE=osv asks another
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --vulnerability-service $(SERVICE) \
		--requirement ops/deploy/requirements.lock --requirement ops/deploy/build.lock

.PHONY: sbom
sbom: .venv/dev.stamp ## Write dist/sbom.json: what is in the image, as CycloneDX
	@mkdir -p dist
	$(BIN)/cyclonedx-py requirements ops/deploy/requirements.lock --pyproject pyproject.toml \
		--mc-type application --output-reproducible --output-format JSON --output-file dist/sbom.json

.PHONY: up
up: ## Start the whole pipeline in Docker; see ops/runbook.md
	docker compose up --build --detach --wait

.PHONY: down
down: ## Stop it; the data stays
	docker compose down

.PHONY: clean
clean: ## Remove the virtual environment, the services' files and all caches
	rm -rf .venv .venv-lowest .venv-newest .venv-peers .services .run .fuzz .site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/%.stamp: pyproject.toml
	@PYTHON=$(PYTHON) ops/services/venv.sh $*
