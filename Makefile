PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN = $(VENV)/bin

.PHONY: demo test lint readme bench clean

demo: $(VENV)/installed  ## the main job on a shipped model: rule, certificate, figure
	$(BIN)/python -m analyses.unroll_model eagle-d10 --figure out/eagle-d10.png

test: $(VENV)/installed  ## the whole suite
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright

readme: $(VENV)/installed  ## every block of the README gives the output it shows
	$(BIN)/python docs/readme.py --check

bench: $(VENV)/installed  ## ratios of timings; never part of the suite
	$(BIN)/python -m pytest benchmarks -o addopts= -s --benchmark-only --benchmark-columns=median,rounds

$(VENV)/installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-39 build out
