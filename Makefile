# Targets for a machine with Python 3.11 or newer, make, and a package index.
#   make rates   set up, then run the main job          make test    set up, then run the tests
# The set-up is a virtual environment in .venv with the exact versions of requirements.txt, made once.

VENV ?= .venv
BIN := $(VENV)/bin
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do "$$p" $(NEW_ENOUGH) 2>/dev/null && { echo "$$p"; break; }; done)

.PHONY: rates test test-slow lint types docs lock check-lock format clean

rates: $(VENV)/installed
	$(BIN)/hiddenwidth rates --out results/rates --overwrite

test: $(VENV)/installed
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(VENV)/installed
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/installed
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lock holds exact versions and hashes for every supported Python, and no address.
lock: $(VENV)/installed
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --quiet --python-version 3.11 --extra dev pyproject.toml -o requirements.txt

check-lock:
	! grep -nE '://|index-url|find-links|trusted-host' requirements.txt

$(VENV)/installed: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .ruff_cache
