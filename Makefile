# Two commands do everything:   make demo   (the main job on the embedded example)    make test   (lint and tests)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint unit again install system clean compat docs

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[data,dev]'
	@touch $@

demo: install
	$(BIN)/vivace tune

test: install lint unit

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A real Slurm for tests/launch and a Chromium for tests/report, where apt can be used as root; else those tests skip.
system:
	@sh tests/launch/install_slurm.sh
	@sh tests/report/install_chromium.sh

# Four workers on two cores: many tests wait for Slurm or for a process to end; worksteal keeps all busy to the end.
# Tests start many real processes: what fails on a busy machine runs once more, alone. A test that fails twice has failed.
unit: install system
	@rm -rf .pytest_cache/v/cache/lastfailed
	$(BIN)/python -m pytest -n 4 --dist worksteal --durations=25 || $(MAKE) --no-print-directory again

again:
	@echo "The tests that failed above run once more, one at a time."
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 5

# Other releases of torch and Python, each in an environment of its own (about 5 GB each): see docs/compatibility.md.
compat: install
	$(BIN)/python -m tools.compat --reuse

# The site: build/site/index.html, to be opened without a server.
docs: install
	$(BIN)/python -m sphinx -q -W --keep-going -c tools/site docs build/site

clean:
	rm -rf $(VENV) build dist *.egg-info
