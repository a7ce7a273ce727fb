# Two commands on a fresh machine with Python and make: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
READERS := .venv-readers
BIN := $(VENV)/bin

.PHONY: demo test lint types bench readers screenshots clean

$(VENV)/.ready: pyproject.toml accelerate_autoprof.pth accelerate_autoprof.start
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev --editable .
	touch $@

# What the traces are opened with has needs of its own, so it lives apart.
$(READERS)/.ready: requirements-readers.txt
	$(PYTHON) -m venv $(READERS)
	$(READERS)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(READERS)/bin/python -m pip install --quiet --requirement requirements-readers.txt
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
		echo "no chromium: the Perfetto tests need one on the PATH"
	touch $@

demo: $(VENV)/.ready
	ACCELERATE_USE_CPU=true ACCELPROF_ENABLE=1 ACCELPROF_OUTPUT_DIR=autoprof_runs \
		$(BIN)/accelerate launch --multi_gpu --num_processes 2 --main_process_port 0 examples/train.py
	$(BIN)/autoprof traces autoprof_runs

test: $(VENV)/.ready $(READERS)/.ready
	$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.ready
	$(BIN)/mypy

bench: $(VENV)/.ready
	for benchmark in benchmarks/[a-z]*.py; do echo "== $$benchmark" && $(BIN)/python $$benchmark || exit 1; done

readers: $(READERS)/.ready

screenshots: $(VENV)/.ready $(READERS)/.ready
	$(READERS)/bin/python docs/screenshots.py --bin $(BIN)

clean:
	rm -rf $(VENV) $(READERS) autoprof_runs
