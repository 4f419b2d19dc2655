# make demo         run the example on four ranks; needs nothing but Python and make
# make test         run the tests
# make test-long    run those that take minutes
# make check        style, types and the direction of imports

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-long check

demo: .venv/installed
	$(BIN)/ringcast-launch -n 4 examples/identifiers.py

test: .venv/installed-test
	$(BIN)/pytest -n 2 --dist loadfile -m "not long"

test-long: .venv/installed-test
	$(BIN)/pytest -n 2 --dist worksteal -m long

check: .venv/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=launcher $(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ .venv/installed
