# make run    a local mesh that shows itself working (sets everything up first)
# make test   every check: lint, types, import rules, tests (sets everything up first)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Programs start in half the time where Python may keep the bytecode of modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test types analysis lint bench fuzz clean

run: $(VENV)/.installed
	$(BIN)/anabranch demo

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs=2 types analysis
	$(BIN)/pytest --numprocesses=2 tests/unit tests/sim
	$(BIN)/pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder -m 'not alone' tests/real
	$(BIN)/pytest -m alone tests/real

# Side by side: mypy takes one core only.
types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/lint-imports

analysis: $(VENV)/.installed-dev
	$(BIN)/pytest tests/spark

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	$(BIN)/anabranch bench throughput
	$(BIN)/anabranch bench rtt
	$(BIN)/anabranch bench relay
	$(BIN)/anabranch bench fanout

fuzz: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet --editable '.[fuzz]'
	$(BIN)/python tests/fuzz/fuzz_receive.py -atheris_runs=10000000

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[speed]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
