# Everything a developer runs. Needs Python >= 3.11 and make; the rest is installed into .venv.

VENV := .venv
BIN := $(VENV)/bin
SAMPLE ?= samples/wide_branches.hlo
WORKERS ?= auto
CORPUS ?=
STEPS ?=
COMMIT ?= # what is measured, where git does not know
SECONDS ?= 60

# The first Python new enough, unless PYTHON names one.
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
	$(shell $(p) -c 'import sys; print("$(p)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))

.DEFAULT_GOAL := help
.PHONY: help run test test-frameworks golden fmt lint types check corpus gpu bench-gpu forms-gpu bench fuzz venv clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.installed ## Compile and run a sample (SAMPLE=FILE for another program)
	$(BIN)/hlo2graph run $(SAMPLE)

test: $(VENV)/.developing ## Run all tests (WORKERS=N processes)
	$(BIN)/pytest -q -n $(WORKERS)

test-frameworks: $(VENV)-frameworks/.installed ## Run the tests that take TensorFlow and PyTorch
	HLO2GRAPH_TEST_FRAMEWORKS=1 $(VENV)-frameworks/bin/pytest -q -n 0 -m frameworks

golden: $(VENV)/.developing ## Write the golden files anew; read their diff before committing
	$(BIN)/pytest -q -n 0 tests/test_golden.py --update-golden
	$(BIN)/python -m tests.opcodes

fmt: $(VENV)/.developing ## Format the code
	$(BIN)/ruff format hlo2graph tests
	$(BIN)/ruff check --fix hlo2graph tests

lint: $(VENV)/.developing ## Check style and format
	$(BIN)/ruff check hlo2graph tests
	$(BIN)/ruff format --check hlo2graph tests

types: $(VENV)/.developing ## Check types
	$(BIN)/mypy

check: lint types test ## Lint, types, tests

corpus: $(VENV)/.developing ## Run folders of programs and known results (CORPUS="DIR ...")
	@test -n "$(CORPUS)" || { echo 'say which folders: make corpus CORPUS="DIR ..."'; exit 2; }
	$(BIN)/python tests/corpus.py $(CORPUS)

OF = $(if $(COMMIT),--commit $(COMMIT))

gpu: $(VENV)/.developing ## On a GPU: all of it (CORPUS="DIR ..."; STEPS="tests soak ..." for some)
	$(BIN)/hlo2graph doctor
	$(BIN)/python -m tests.gpu.suite $(CORPUS) $(if $(STEPS),--steps $(STEPS)) $(OF)

bench-gpu: $(VENV)/.developing ## On a GPU: measure beside XLA (CORPUS="DIR ..."; needs jax for CUDA)
	$(BIN)/python -m tests.gpu.bench $(CORPUS) $(OF)

forms-gpu: $(VENV)/.developing ## On a GPU: measure each kernel form beside a copy (ONLY="WORD ...")
	$(BIN)/python -m tests.gpu.forms --only $(ONLY) $(OF)

bench: $(VENV)/.developing ## Measure how cost grows with program size
	$(BIN)/python tests/bench/scale.py

fuzz: $(VENV)/.developing ## Break texts, then hold random modules against XLA (SECONDS=N each)
	$(BIN)/python tests/fuzz/text.py $(SECONDS)
	$(BIN)/python tests/fuzz/modules.py $(SECONDS)

venv: $(VENV)/.developing ## Make .venv with all that tests and checks need

clean: ## Remove .venv, caches and build outputs
	rm -rf $(VENV) $(VENV)-frameworks build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo 'needs Python >= 3.11; name one: make PYTHON=/path/to/python3.12'; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo '$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv'; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)

$(VENV)-frameworks/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)-frameworks
	$(VENV)-frameworks/bin/pip install --quiet --disable-pip-version-check --editable '.[frameworks]'
	@touch $@

$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.developing: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@ $(VENV)/.installed
