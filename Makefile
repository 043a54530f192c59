# Every target sets itself up; the last line it prints is its verdict.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Set before Prefect is imported, so that nothing is ever written to the user's home.
export PREFECT_HOME ?= $(CURDIR)/.prefect
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export MLFLOW_DISABLE_TELEMETRY = true
export DO_NOT_TRACK = 1
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help env demo test test-gateway test-flower test-keras lint ui killtest chaostest faulttest fuzz audit \
  bench bench-peer bench-overhead bench-plant bench-peer-life bench-detectors bench-cifar10 bench-pronto \
  bench-flower compare clean

help:
	@echo "make demo          ten plants, ten nights, every decision on disk"
	@echo "make test          lint, types, layers and all tests"
	@echo "make test-flower   the Flower strategy and its example, in an environment of their own (FLWR=1.42.0 SHORT=1)"
	@echo "make test-gateway the HTTP gateway: pages, guard, hostile lines, its description by schemathesis"
	@echo "make test-keras    the Keras adapter on one of its backends (BACKEND=torch, jax or tensorflow)"
	@echo "make ui            Prefect and MLflow in the browser, on what the demo made"
	@echo "make bench         whole rounds against what this machine allows (SIZES=\"50x1e6 20x1e8\")"
	@echo "make bench-peer    the grouping step against fed-clma on the same arrays (SIZE=10x545290)"
	@echo "make bench-overhead what a night costs beside the mathematics (CLIENTS=10,10000 or HISTORY=365)"
	@echo "make bench-plant   what a plant installs, and how long its client takes to import"
	@echo "make bench-pronto  recorded plant data, four methods side by side (DATA=FILE SEEDS=200:203)"
	@echo "make bench-peer-life whole lives under fed-clma and under our methods (SCENARIOS= METHODS= SEEDS=)"
	@echo "make bench-flower  one Flower app under our strategy and fed-clma's (SCENARIOS= METHODS= SEEDS=)"
	@echo "make bench-cifar10 the same on CIFAR-10, drift repeated and staggered (SHORT=1: one short run)"
	@echo "make bench-detectors drift detectors on the same recorded losses (SCENARIOS= SEEDS=)"
	@echo "make compare       methods side by side (SCENARIOS=plant/stagger METHODS=clma,fedavg SEEDS=0:2)"
	@echo "make killtest      nights killed at every step and at random times (POINTS=all KILLS=40 SEED=1)"
	@echo "make faulttest     every call of a day and a night on a disk that fails, every fault"
	@echo "make chaostest     servers killed, hanging and locked in the middle of nights; half an hour"
	@echo "make fuzz          10,000 spoiled updates against the gate (FILES=10000 SEED=1)"
	@echo "make audit         pinned packages against the published advisories (needs the network)"
	@echo "make lint | env | clean"

env: $(STAMP)
	@echo "env: $$($(BIN)/python --version) in $(VENV)"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "env failed: $$($(PYTHON) --version), Python 3.11 or newer is needed"; exit 1; }
	@echo "installing into $(VENV) (about 2 GB, a few minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt --editable '.[pipeline,dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/python -m flows.demo

# A file's tests stay together: they share servers and recordings.
# More workers than cores: many tests wait for servers that they started.
WORKERS ?= 3
test: lint
	@$(BIN)/python -m pytest -p no:cacheprovider -n $(WORKERS) --dist loadfile

test-gateway: $(STAMP)
	@$(BIN)/python -m pytest -p no:cacheprovider tests/deployments/test_gateway*.py \
	  tests/clma/client/test_line.py tests/clma/updates/test_request_signing.py \
	  && echo "test-gateway: passed" || { echo "test-gateway: failed"; exit 1; }

# Keras computes with one backend a process; each has an environment of its own.
BACKEND ?= torch
KERAS := .venv-keras-$(BACKEND)
KERAS_NEEDS = $(if $(filter tensorflow,$(BACKEND)),tensorflow-cpu,$(BACKEND))
test-keras: $(KERAS)/.installed
	@KERAS_BACKEND=$(BACKEND) $(KERAS)/bin/python -m pytest -q -p no:cacheprovider --noconftest \
	  tests/clma/adapters/test_keras.py \
	  && KERAS_BACKEND=$(BACKEND) $(KERAS)/bin/python -m pytest -q -p no:cacheprovider \
	  --confcutdir=tests/examples tests/examples/test_keras_plant.py \
	  && echo "test-keras: passed on $(BACKEND)" || { echo "test-keras: failed on $(BACKEND)"; exit 1; }

$(KERAS)/.installed: pyproject.toml constraints.txt
	@echo "installing Keras and $(BACKEND) into $(KERAS) (up to 2 GB) ..." >&2
	@test -x $(KERAS)/bin/python || $(PYTHON) -m venv $(KERAS)
	@$(KERAS)/bin/python -m pip --disable-pip-version-check --quiet install \
	  --constraint constraints.txt --editable '.[keras]' $(KERAS_NEEDS) pytest pytest-timeout
	@touch $@

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports | tail -n 2
	@echo "lint: ruff, mypy and import-linter are clean"

ui: $(STAMP)
	@$(BIN)/python -m deployments.ui

# Fleets are written once; BENCH_DIR names another place for them. All sizes together
# take 14 GB, CLEAN=1 deletes them again.
BENCH_DIR ?= benchmarks/.data
SIZES ?=
bench: $(STAMP)
	@$(BIN)/python -m benchmarks.engine --dir $(BENCH_DIR) $(if $(SIZES),--sizes "$(SIZES)") \
	  $(if $(OUT),--out $(OUT)) $(if $(CLEAN),--clean)

# The other package has our import name: it lives in an environment of its own, with our versions of
# the numeric libraries.
PEER := .venv-peer
SIZE ?= 10x545290
LIMIT_S ?= 900
bench-peer: $(STAMP) $(PEER)/.installed
	@$(BIN)/python -m benchmarks.peer --size $(SIZE) --dir $(BENCH_DIR) --limit-s $(LIMIT_S) \
	  --peer-python $(PEER)/bin/python

$(PEER)/.installed: constraints.txt
	@echo "installing fed-clma into $(PEER) (about 500 MB) ..." >&2
	@test -x $(PEER)/bin/python || $(PYTHON) -m venv $(PEER)
	@grep -E '^(numpy|scipy|scikit-learn|threadpoolctl)==' constraints.txt > $(PEER)/constraints.txt
	@$(PEER)/bin/python -m pip --disable-pip-version-check --quiet install \
	  --constraint $(PEER)/constraints.txt fed-clma==0.1.1 \
	  || { echo "bench-peer: failed, fed-clma cannot be installed"; exit 1; }
	@touch $@

# Flower wants other versions of protobuf, rich and typer than Prefect.
FLOWER := .venv-flower
FLWR ?= 1.42.0
FLOWER_TESTS := tests/clma/adapters/flower tests/clma/adapters/test_flower_extra.py
FLOWER_STAMP := $(FLOWER)/.installed-$(FLWR)
# SHORT=1: the strategy without Flower's simulation engine, which needs Ray.
ifeq ($(SHORT),1)
FLOWER_STAMP := $(FLOWER)/.installed-$(FLWR)-short
FLOWER_PACKAGE := flwr==$(FLWR)
else
FLOWER_TESTS += tests/examples/test_flower_app.py tests/benchmarks/test_flower_side_by_side.py
FLOWER_PACKAGE := flwr[simulation]==$(FLWR)
endif
test-flower: $(FLOWER_STAMP)
	@$(FLOWER)/bin/python -m pytest -p no:cacheprovider $(FLOWER_TESTS) \
	  && echo "test-flower: passed with flwr $(FLWR)" \
	  || { echo "test-flower: failed with flwr $(FLWR)"; exit 1; }

$(FLOWER_STAMP): pyproject.toml constraints.txt
	@echo "installing flwr $(FLWR) into $(FLOWER) (about 900 MB) ..." >&2
	@test -x $(FLOWER)/bin/python || $(PYTHON) -m venv $(FLOWER)
	@grep -E '^(numpy|obstore|pyarrow|pydantic|pytest|pytest-timeout|safetensors|scikit-learn|scipy|threadpoolctl)==' \
	  constraints.txt > $(FLOWER)/constraints.txt
	@$(FLOWER)/bin/python -m pip --disable-pip-version-check --quiet install \
	  --constraint $(FLOWER)/constraints.txt --editable '.[flower]' '$(FLOWER_PACKAGE)' \
	  pytest pytest-timeout \
	  || { echo "test-flower: failed, flwr $(FLWR) cannot be installed"; exit 1; }
	@rm -f $(FLOWER)/.installed-*
	@touch $@

# One Flower app under our strategy, under fed-clma and under FedAvg, in the simulation engine.
bench-flower: SCENARIOS = digits/stagger,digits/repeat
bench-flower: METHODS = clma,fed-clma,fedavg
bench-flower: SEEDS = 300:303
bench-flower: OUT = build/flower
bench-flower: $(FLOWER_STAMP) $(PEER)/.installed-ray
	@$(FLOWER)/bin/python -m benchmarks.flower_side_by_side --scenarios $(SCENARIOS) \
	  --methods $(METHODS) --seeds $(SEEDS) --out $(OUT) --peer-python $(PEER)/bin/python

$(PEER)/.installed-ray: $(PEER)/.installed
	@$(PEER)/bin/python -m pip --disable-pip-version-check --quiet install \
	  --constraint $(PEER)/constraints.txt 'flwr[simulation]==$(FLWR)' \
	  || { echo "bench-flower: failed, flwr $(FLWR) cannot be installed"; exit 1; }
	@touch $@

CLIENTS ?= 10,100,1000,10000
bench-overhead: $(STAMP)
	@$(BIN)/python benchmarks/overhead.py \
	  $(if $(HISTORY),--history $(HISTORY),--clients $(CLIENTS))

bench-plant: $(STAMP)
	@$(BIN)/python -m benchmarks.plant_install

# Whole lives under the other package and under our methods, on the same clients.
DATA_DIR ?= ../shared/data
PEER_LIFE = $(BIN)/python -m benchmarks.peer_life --data-dir $(DATA_DIR) --peer-python $(PEER)/bin/python
bench-peer-life: SCENARIOS = digits/stagger,digits/repeat
bench-peer-life: METHODS = clma,clma-package,fedavg,local,oracle
bench-peer-life: SEEDS = 100:103
bench-peer-life: OUT = build/peer-life
bench-peer-life: $(STAMP) $(PEER)/.installed
	@$(PEER_LIFE) --scenarios $(SCENARIOS) --methods $(METHODS) --seeds $(SEEDS) --out $(OUT)

# Detectors offline, on losses that fleets had under their true cohorts.
bench-detectors: SCENARIOS = digits/stationary,digits/stagger,digits/repeat,digits/gradual
bench-detectors: SEEDS = 300:302
bench-detectors: $(STAMP)
	@$(BIN)/python -m benchmarks.detectors --data-dir $(DATA_DIR) --scenarios $(SCENARIOS) \
	  --seeds $(SEEDS) $(if $(OUT),--out $(OUT))

# CIFAR-10 as the other package's authors describe it. SHORT=1: a quarter of the images, one seed.
bench-cifar10: IMAGES = $(if $(SHORT),cifar10-short,cifar10)
bench-cifar10: SEEDS = $(if $(SHORT),100:101,100:103)
bench-cifar10: OUT = build/$(IMAGES)
bench-cifar10: $(STAMP) $(PEER)/.installed
	@$(PEER_LIFE) --scenarios $(IMAGES)/stagger,$(IMAGES)/repeat --methods clma,fedavg,local,oracle \
	  --seeds $(SEEDS) --out $(OUT)

DATA ?= ../shared/data/pronto/pronto_process_1hz.parquet
SEEDS ?= 200:203
bench-pronto: $(STAMP)
	@$(BIN)/python benchmarks/pronto.py --data $(DATA) --seeds $(SEEDS)

SCENARIOS ?= plant/stagger
METHODS ?= clma,fedavg,local
compare: SEEDS = 0:2
compare: $(STAMP)
	@$(BIN)/python -m flows.compare --scenarios "$(SCENARIOS)" --methods "$(METHODS)" \
	  --seeds "$(SEEDS)" --out "$(or $(OUT),build/comparison)" \
	  $(if $(DATA_DIR),--data-dir "$(DATA_DIR)") $(if $(ROUNDS),--rounds $(ROUNDS))

SEED ?= 1
POINTS ?= all
KILLS ?= 40
killtest: $(STAMP)
	@$(BIN)/python -m tests.reliability.killtest --points $(POINTS) --random $(KILLS) --seed $(SEED)

faulttest: $(STAMP)
	@$(BIN)/python -m tests.reliability.io_faults

chaostest: $(STAMP)
	@$(BIN)/python -m pytest -p no:cacheprovider -m chaos tests && echo "chaostest: passed" \
	  || { echo "chaostest: failed"; exit 1; }

FILES ?= 10000
fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz.mutate --files $(FILES) --seed $(SEED)

audit: $(STAMP)
	@$(BIN)/python -c 'import pip_audit' 2>/dev/null \
	  || $(PIP) install --constraint constraints.txt 'pip-audit>=2.10'
	@$(BIN)/python -m tests.advisories

clean:
	rm -rf $(VENV) $(PEER) $(FLOWER) .venv-keras-* benchmarks/.data .prefect .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@echo "clean: federations/ and mlruns/ are kept, remove them by hand"
