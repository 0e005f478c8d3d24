# Everything here sets itself up: a clone, Python 3.11+ and Java 17+ are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-slow check bench fuzz docs picture lock clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable . --editable ./dropin
	touch $(READY)

demo: $(READY)  ## train on real handwritten digits with two workers
	$(BIN)/sparktrain demo

check: $(READY)  ## lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(READY) check  ## all tests but the slow ones
	$(BIN)/pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder --durations=40

test-slow: $(READY)  ## the slow tests: other versions of Keras, fifty clusters in a row, and what takes long
	$(BIN)/pytest -m slow

bench: $(READY)  ## the benchmarks, printed as ratios
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/feed.py
	$(BIN)/python bench/tfrecord.py
	$(BIN)/python bench/cluster.py
	$(BIN)/python bench/inference.py
	$(BIN)/python bench/parameter_server.py

fuzz: $(READY)  ## ten minutes of damaged TFRecord files
	$(BIN)/pip install --quiet atheris
	$(BIN)/python tests/fuzz/fuzz_records.py

docs: $(READY)  ## write the generated pages
	$(BIN)/python -m sparktrain.settings > docs/settings.md
	$(BIN)/python -m sparktrain.data.schema > docs/types.md

picture: $(READY)  ## record the demo into docs/images/demo.svg; needs tmux
	$(BIN)/python docs/images/record.py

lock: $(READY)  ## renew requirements.lock
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile requirements.in --overrides requirements.overrides --universal \
	  --python-version 3.11 --no-emit-package sparktrain --no-annotate --no-header \
	  --output-file requirements.lock

clean:  ## remove the environment
	rm -rf $(VENV) build src/*.egg-info
