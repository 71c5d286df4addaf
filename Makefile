# Every target does its own set-up in .venv; nothing but Python 3.10+, make and (for a few tests) a C compiler is needed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# Where a shell forbids it, each process that a test starts would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test setup demo check lint types contracts unit slow search pythons oldest docs gallery screens bench clean

# The tests wait for processes, ports and clocks now and then: the checks, one after the other, fill the gaps.
test: $(STAMP)
	$(MAKE) -j 2 unit check

setup: $(STAMP)

check: lint types contracts

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]'
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# numpy before 2.3, the newest for Python 3.10, describes its arrays more loosely: there true code is called wrong.
types: $(STAMP)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then $(BIN)/mypy; \
	else echo "types are not checked: numpy for Python 3.10 has no exact types; use Python 3.11 or newer"; fi

contracts: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup --durations 40 -m "not slow"

# The tests that take longer, listed in tests/conftest.py: with `make test` that is all of them.
slow: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup --durations 40 -m slow

# Each property with a thousand new examples: for a night, not for each change.
search: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 -m hypothesis --hypothesis-profile search

demo: $(STAMP)
	$(BIN)/python -m pmtpy dump powersensor3:virtual -o load=square:low=30,high=90,hz=2 --duration 3s --overwrite -f demo.csv
	$(BIN)/python -m pmtpy plot demo.csv -o demo.png

# The tests on every Python of this machine that pmtpy supports, each in an environment of its own.
pythons: $(STAMP)
	for python in $$($(BIN)/python -m tests.packaging.interpreters); do \
		$(MAKE) unit slow PYTHON=$$python VENV=build/venv-$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1; \
	done

# The rooms that touch libraries, on the oldest Python with the oldest versions that pyproject.toml admits. What those say
# of each other is not ours.
OLDEST = build/venv-oldest
OLDEST_ROOMS = analysis/signal analysis/comparison backends/nvml cluster integrations io lab live plotting
oldest: $(STAMP)
	mkdir -p build
	$(BIN)/python -m tests.packaging.oldest > build/oldest.txt
	$$($(BIN)/python -m tests.packaging.interpreters 3.10) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint build/oldest.txt --editable '.[all]' \
		'pytest>=8,<9.2' pytest-timeout pytest-xdist hypothesis
	$(OLDEST)/bin/python -m pytest -n auto --maxprocesses 8 --dist loadgroup -W ignore::DeprecationWarning \
		$(addprefix tests/,$(OLDEST_ROOMS))

docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "open build/docs/index.html"

gallery: $(STAMP)
	$(BIN)/python docs/make_pictures.py

# Pages in a browser: needs playwright and a Chromium of the system.
screens: $(STAMP)
	$(BIN)/python docs/make_screens.py

bench: $(STAMP)
	for script in benchmarks/bench_*.py; do $(BIN)/python -m benchmarks.$$(basename $$script .py) || exit 1; done

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache demo.csv demo.csv.json demo.png
