# make demo         run the example on four ranks; needs nothing but Python and make
# make quick        run the tests of what decides and computes only, by samples: no jobs, no root, 20 seconds
# make test         run the tests
# make test-live    run those on emulated hosts, and those that start many jobs
# make test-long    run those that take minutes
#                   with SAMPLE=seed both run only a part, which the seed chooses
# make test-pure    run those of protocol, engine, collectives and transports without the compiled part
#                   with TESTS="tests/protocol tests/wire" both run only these
# make mpi4py-suite  run mpi4py's own tests on ringcast.MPI, and write their table into docs/use/mpi4py.md
# make check        style, types and the direction of imports
# make docs         build the pages, with a reference of the API, as a site in site
# make dist         build the source distribution and the wheels in dist, check and try them

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check

# Tests start hundreds of interpreters, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

COMPILED := ringcast/protocol/_lane.abi3.so

# Any text; .ci/run takes the commit's name.
SAMPLED := $(if $(SAMPLE),--sample=$(SAMPLE))

.PHONY: demo quick test test-live test-long test-pure mpi4py-suite check docs dist

demo: .venv/installed
	$(BIN)/ringcast-launch -n 4 examples/identifiers.py

# One connects workers by sockets.
QUICK := tests/wire tests/control tests/protocol tests/schedules tests/launcher/test_supervisor.py --ignore tests/control/test_control.py

quick: $(COMPILED)
	$(BIN)/pytest -n 2 --hypothesis-profile quick -m "not live and not long and not thorough" $(QUICK)

test: $(COMPILED)
	@$(BIN)/python tests/support/speed.py
	$(BIN)/pytest -n 4 --dist worksteal -m "not live and not long" $(TESTS)

test-live: .venv/installed-live $(COMPILED)
	$(BIN)/pytest -n 4 --dist worksteal -m "live and not long" $(SAMPLED)

test-long: .venv/installed-live $(COMPILED)
	$(BIN)/pytest -n 4 --dist worksteal -m long $(SAMPLED)

test-pure: TESTS = tests/protocol tests/engine tests/collectives tests/transports
test-pure: .venv/installed-test
	RINGCAST_PURE=1 $(BIN)/pytest -n 4 --dist worksteal -m "not live and not long" $(TESTS)

mpi4py-suite: $(COMPILED)
	$(BIN)/python docs/scripts/mpi4py_suite.py --write

check: .venv/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=launcher $(BIN)/lint-imports

# Nothing is fetched but the packages. Material warns of a mkdocs that is not there yet. With --quiet nothing would be strict.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel with the compiled part, which says for which Linux it is as an index wants it; and one for all platforms.
dist: .venv/installed-dist
	rm -rf dist
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/python -m build
	[ ! -e dist/*-linux_*.whl ] || PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist dist/*-linux_*.whl
	rm -f dist/*-linux_*.whl
	RINGCAST_PURE=1 $(BIN)/python -m build --wheel
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	.ci/try-dist dist $(PYTHON)

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | $(BIN)/python
	$(INSTALL) -e .
	touch $@

# Debian's pip knows no dependency groups. The tests draw, as `bench` does.
.venv/installed-test: pyproject.toml | $(BIN)/python
	$(INSTALL) 'pip>=25.1'
	$(INSTALL) -e '.[bench]' --group dev
	touch $@ .venv/installed

# The compiled part: the installation has made it, and this makes it again after a change. If it cannot be, one line says why.
$(COMPILED): ringcast/protocol/_lane.c hatch_build.py | .venv/installed-test
	$(BIN)/python hatch_build.py

# torch comes with libraries for GPUs. Dask and Ray, in whose clusters some tests run, are large too, as are moto, the store that
# others read from, and scipy, which LightGBM and XGBoost need.
.venv/installed-live: .venv/installed-docs
	$(INSTALL) -e '.[dask,ray,torch]' --group stores --group boosting --group pools --group suites
	touch $@

.venv/installed-docs: .venv/installed-test
	$(INSTALL) --group docs
	touch $@

.venv/installed-dist: .venv/installed-test
	$(INSTALL) --group dist
	touch $@
