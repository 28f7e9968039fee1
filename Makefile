# make demo   compile, show, verify and run: the whole path once
# make test   the tests
# make lint   ruff and mypy
# make docs   the documentation as a site under site/
# make acceptance   what takes long: tables of quality and scale (kept under benchmarks/results/), damages, damaged files, faults
# Each makes .venv first and installs debubble there, with all it needs in the versions of constraints.txt; all but the
# demo add the tools of the group dev.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src compiler solver runtime -name '*.py')

.PHONY: demo test lint docs acceptance

demo: $(VENV)/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

test: $(VENV)/installed $(VENV)/tools
	$(BIN)/python -m pytest

lint: $(VENV)/installed $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p debubble

docs: $(VENV)/installed $(VENV)/tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

acceptance: $(VENV)/installed $(VENV)/tools
	for table in zero-bubble optima tight v dualpipe; do $(BIN)/python benchmarks/quality.py $$table --save || exit 1; done
	$(BIN)/python benchmarks/scale.py --save
	$(BIN)/python benchmarks/emulation.py --save
	$(BIN)/python benchmarks/damages.py --save
	$(BIN)/python benchmarks/fuzz.py
	for table in check runtime split faults; do $(BIN)/python benchmarks/$$table.py --save || exit 1; done

$(VENV)/installed: $(VENV)/requirements $(SOURCES)
	rm -rf build
	$(BIN)/pip install --quiet --no-deps --force-reinstall .
	touch $@

$(VENV)/requirements: pyproject.toml constraints.txt
	@echo "installing debubble with torch and the solvers into $(VENV): this takes minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt '.[torch,highs,cp-sat,plot]'
	touch $@

$(VENV)/tools: $(VENV)/requirements
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev
	touch $@
