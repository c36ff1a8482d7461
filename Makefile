# Two commands for a newcomer: `make demo` and `make test`. Each sets everything up by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# a second run with an unchanged pyproject.toml installs nothing
READY := $(VENV)/.installed
# the tests' models are small: a process a core, each of one thread, ends soonest
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4

.PHONY: demo docvqa test test-slow test-report ci study lint clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "qpriv needs Python 3.11 or newer: set PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "no venv module here: run  apt-get install -y python3-venv  and try again"; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -e '.[test]'
	@touch $@

# the whole method once, on the embedded models; a stopped demo goes on where it was
demo: $(READY)
	$(BIN)/qpriv study --config study/demo.yaml --out runs/demo

# the full grid over three seeds, about two hours; resumable like the demo
study: $(READY)
	$(BIN)/qpriv study --config study/full.yaml --out runs/study

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) --dist loadfile -m "not slow"

# what document models memorise, at three resolutions; stopped, it goes on where it was
docvqa: $(READY)
	$(BIN)/qpriv study --config study/documents.yaml --out runs/documents

# kills, parties that are processes, long commands: about a quarter of an hour
test-slow: $(READY)
	$(PYTEST) --dist worksteal -m slow --timeout 1500 -o faulthandler_timeout=1800

# the report as readers see it, in a headless Chromium; the screenshots stay to be looked at
test-report: $(READY)
	$(BIN)/python -m pytest -q tests/browser --basetemp=build/browser
	@echo "screenshots: build/browser/screenshots"

ci: test test-slow

lint: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info
