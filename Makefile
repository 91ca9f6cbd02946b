# Two commands do everything: `make demo` and `make test`. Each installs what it needs into $(VENV) first.

VENV ?= .venv
# The Python to make $(VENV) with; any from 3.11 on.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
EXTRAS := dev,examples
# One more than there are processors: some tests wait. JAX processes use several threads each: more than five slow each other down.
WORKERS ?= $(shell python3 -c 'import os; print(min(os.cpu_count() or 1, 4) + 1)')
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# What runs under every Python that is supported: all that depends on private names of JAX and Keras, some of what TensorFlow prints,
# and something of everything else.
STRATEGIES := $(patsubst %,tests/strategies/test_%.py,strategies explain experts offloaded row_kinds sequences)
PARITY := $(filter-out %_ops_parity.py,$(wildcard tests/parity/test_*.py))
SAMPLE := tests/test_internals.py tests/compat/keras/test_internals.py tests/test_tape*.py $(PARITY) \
	$(STRATEGIES) tests/cli/test_main.py tests/compat/test_function.py tests/compat/data/test_dataset.py \
	tests/compat/distribute/test_run.py tests/compat/keras/test_fit.py tests/compat/train/test_restoration.py tests/compat/io \
	tests/compat/saved_model tests/compat/test_host_part.py \
	tests/cluster/test_tls.py tests/cluster/test_agreement.py tests/testing/test_files.py tests/test_memory.py tests/test_thread_state.py
# How many programs of each kind `make fuzz` tries, and the first one's number.
PROGRAMS ?= 200
SEED ?= $(shell date +%s)
# The CUDA that `make bench-gpu` installs JAX for, where JAX sees no GPU: cuda12 or cuda13.
CUDA ?= cuda13
# What `make bench` measures.
PART ?= steps

# Four times as fast as pip.
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python
INSTALLED := $(VENV)/.installed
PEERS := $(VENV)/.installed-peers
CONSTRAINTS = constraints-$$($(BIN)/python -c 'import sys; print("py311" if sys.version_info < (3, 12) else "py312")').txt

# Else each process that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install peers demo test test-sample test-gpu test-all coverage check parity api bench bench-gpu fuzz soak lock format clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make .venv with everything that the other commands need.

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found. Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) could not make $(VENV): see above." >&2; exit 1; }

$(INSTALLED): pyproject.toml constraints-py311.txt constraints-py312.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet uv --constraint $(CONSTRAINTS)
	$(INSTALL) --editable '.[$(EXTRAS)]' --constraint $(CONSTRAINTS)
	@touch $@

peers: $(PEERS) ## Add TensorFlow and the TPU compiler, which tests and benchmarks compare with and use.

$(PEERS): $(INSTALLED)
	$(INSTALL) --editable '.[$(EXTRAS),peers]' --constraint $(CONSTRAINTS)
	@# The TPU compiler lies beside the other packages: among them, JAX would look for a TPU at every start.
	$(INSTALL) --no-deps --target $(VENV)/libtpu libtpu==0.0.51 || \
		echo "libtpu could not be installed: the test that compiles for TPU will be skipped."
	@touch $@

demo: $(INSTALLED) ## Train a tf.distribute program on real digits over 8 devices.
	@$(BIN)/tfdist-jax run --devices 8 examples/digits.py

test: $(INSTALLED) ## Run the tests, but those marked exhaustive.
	$(PYTEST) -m 'not exhaustive' $(ARGS)

test-sample: $(INSTALLED) ## Run the tests that CI runs under every Python.
	$(PYTEST) -m 'not exhaustive and not left_out and not peers' $(SAMPLE) $(ARGS)

test-gpu: $(INSTALLED) ## Run the tests that need an NVIDIA GPU.
	TFDIST_TEST_PLATFORMS=cuda,cpu TFDIST_TEST_XLA_FLAGS= $(BIN)/python -m pytest tests/test_gpu.py $(ARGS)

test-all: $(INSTALLED) ## Run all tests, which takes long.
	TFDIST_EXAMPLES=25 TFDIST_TEST_XLA_FLAGS= $(PYTEST) $(ARGS)

coverage: $(INSTALLED) ## Run all tests and measure what they cover, which takes twice as long.
	$(PYTEST) --cov --cov-report=term $(ARGS)

check: $(INSTALLED) ## Check lint, format, types and the import contract.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

parity: $(PEERS) ## Record again what tests/parity/programs print under TensorFlow, and show what changed.
	$(BIN)/python tests/parity/recording.py $(ARGS)

api: $(INSTALLED) ## Write docs/api.md, docs/reference.md and the type stubs anew.
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_stubs.py

bench: $(PEERS) ## Measure training steps beside hand-written JAX and TensorFlow; PART=eager, start ...: benchmarks/bench_eager.py ...
	$(BIN)/python benchmarks/bench_$(PART).py $(ARGS)

bench-gpu: $(INSTALLED) ## Measure training in bfloat16 on NVIDIA GPUs, beside hand-written JAX, Keras and PyTorch; ARGS=--torch-python PATH
	@command -v nvidia-smi > /dev/null || { echo "There is no nvidia-smi here, and so no NVIDIA GPU to measure." >&2; exit 1; }
	$(BIN)/python -c 'import jax; jax.devices("cuda")' 2> /dev/null || $(INSTALL) 'jax[$(CUDA)]' --constraint $(CONSTRAINTS)
	$(BIN)/python benchmarks/bench_gpu.py $(ARGS)

fuzz: $(INSTALLED) ## Compare random programs with JAX, on the gradient tape and over a batch that is split, with new seeds.
	TFDIST_FUZZ=$(PROGRAMS) TFDIST_FUZZ_SEED=$(SEED) $(PYTEST) tests/test_tape_fuzz.py tests/strategies/test_row_kinds_fuzz.py $(ARGS)

soak: $(INSTALLED) ## Let 100 random faults happen to trainings, in the background; again: how far it is.
	@$(BIN)/python tests/cluster/soak.py --background $(ARGS)

lock: $(INSTALLED) ## Pin the newest dependencies that fit together, for each Python.
	for version in 3.11 3.12; do \
		$(BIN)/uv pip compile pyproject.toml --extra dev --extra examples --extra peers --upgrade \
			--python-version $$version --no-python-downloads --no-annotate \
			--custom-compile-command "make lock" --quiet \
			--output-file constraints-py$$(echo $$version | tr -d .).txt || exit 1; \
	done

format: $(INSTALLED) ## Format the code and repair what ruff can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what the other commands have built, but not .venv.
	rm -rf build dist htmlcov .coverage* .pytest_cache .ruff_cache *.egg-info
