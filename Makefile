# The two commands a newcomer needs are `make demo` and `make test`; `make help` lists the rest.
# Each makes .venv and installs what it needs on the first call; a stamp file per extra remembers that it did.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# How long the long tests are: make load SESSIONS=200 SECONDS_EACH=60
MESSAGES ?= 1000000
FUZZ_SECONDS ?= 300
SESSIONS ?= 1000
SECONDS_EACH ?= 300
SOAKED ?= 10000
STRUCK ?= 10000
PROGRAMS ?= 2000
SEED ?= 1
SAMPLES ?= 25
# Where `make studio` listens.
WEB ?= 8080
# Where hostcupy is built: CuPy on the CPU (tests/gpu/hostcupy).
HOSTCUPY ?= build/hostcupy
# What hypothesis draws for: the same in every run of the tests, and afresh in `make fuzz`.
DRAWN := tests/server/test_stateful.py tests/server/test_plans.py tests/client/test_compile.py tests/client/test_array_api.py \
	tests/engine/test_properties.py
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What `make environment` installs: the extras of all targets but fuzz.
EXTRAS := demo test web docs dev

.PHONY: help environment demo test test-one test-sdks test-cpp-sanitized studio studio-pages test-studio hostcupy test-gpu gpu-session fuzz memory programs load soak bombs chaos program-table check lint format types layers stubs generate diagram freeze lock notebook docs bench bench-gate clean storm random-programs random-plans opinfo waiting
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 17

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# .venv/.installed-demo means: `pip install -e .[demo]` was done with the pyproject.toml that is there.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[$*]'
	@touch $@
.PRECIOUS: $(VENV)/.installed-%

environment: $(VENV)/.installed-environment ## install what all targets need but fuzz, in one call of pip: quicker than one at a time

$(VENV)/.installed-environment: pyproject.toml | $(BIN)/python
	$(PIP) --editable "$$(echo '.[$(EXTRAS)]' | tr ' ' ,)"
	@touch $(EXTRAS:%=$(VENV)/.installed-%) $@

demo: $(VENV)/.installed-demo ## train a network on handwritten digits over gRPC; writes demo-output/
	$(BIN)/python examples/digits_mlp.py

test: $(VENV)/.installed-test ## run all tests
	$(BIN)/python -m pytest -n auto --dist worksteal

test-one: $(VENV)/.installed-test ## run one file's tests: make test-one FILE=tests/engine/test_backward.py
	$(BIN)/python -m pytest $(or $(FILE),$(error say which: make test-one FILE=tests/engine/test_backward.py))

test-sdks: $(VENV)/.installed-test ## run the tests of the SDKs for other languages; a language without its toolchain is skipped
	$(BIN)/python -m tests.conformance.sdks

test-cpp-sanitized: $(VENV)/.installed-test ## run the C++ SDK's tests with AddressSanitizer and UBSan
	$(BIN)/python -m tests.conformance.sdks --sanitize address,undefined

studio: $(VENV)/.installed-web ## serve with Studio at http://127.0.0.1:8080, and open its pages there; stops with Ctrl+C
	$(BIN)/gradwire serve --web $(WEB)

studio-pages: client/studio/node_modules ## build Studio's pages into the server's package; needs Node
	cd client/studio && npm run --silent types && npm run --silent build

client/studio/node_modules: client/studio/package-lock.json
	cd client/studio && npm ci --no-audit --no-fund
	@touch $@

test-studio: $(VENV)/.installed-test ## test Studio: its types, units, committed build and, where there is Chromium, its pages
	$(BIN)/python -m tests.studio

hostcupy: $(VENV)/.installed-test ## build CuPy for the CPU, which the tests of the GPU path run on; needs g++
	$(BIN)/python tests/gpu/hostcupy/build.py $(HOSTCUPY)

test-gpu: $(VENV)/.installed-test ## run the tests of the GPU path, on hostcupy if it is built, else on a GPU
	$(if $(wildcard $(HOSTCUPY)),HOSTCUPY=$(HOSTCUPY)) $(BIN)/python -m pytest -n auto --timeout 1200 tests/gpu
	$(if $(wildcard $(HOSTCUPY)),$(BIN)/python -m tests.gpu.hostcupy.nvrtc $(HOSTCUPY))

gpu-session: $(VENV)/.installed-test ## on a machine with a GPU: versions, graphs, steps beside PyTorch's, then the tests
	$(BIN)/python -m benchmarks.gpu
	$(BIN)/python -m pytest -n auto --timeout 1200 tests/gpu

fuzz: $(VENV)/.installed-fuzz ## random calls of the ops against PyTorch; changed messages against a server; changed files
	GRADWIRE_FUZZ_SEED=fresh GRADWIRE_FUZZ_CALLS=40 $(BIN)/python -m pytest -n auto tests/parity/test_fuzz.py
	GRADWIRE_HYPOTHESIS=fresh $(BIN)/python -m pytest -n auto $(DRAWN)
	$(BIN)/python -W ignore -m tests.hostile.guided -max_total_time=$(FUZZ_SECONDS)
	$(BIN)/python -m tests.hostile.over_socket --messages $(MESSAGES)
	$(BIN)/python -W ignore -m tests.hostile.corruption
	$(BIN)/python -W ignore -m tests.hostile.log_replay
	$(BIN)/python -W ignore -m tests.hostile.refusal_effects
	$(BIN)/python -m tests.client.stored_programs --seeds 300

load: $(VENV)/.installed-test ## a thousand sessions at once, two of them hostile
	$(BIN)/python -m tests.hostile.load --sessions $(SESSIONS) --seconds $(SECONDS_EACH)

soak: $(VENV)/.installed-test ## ten thousand sessions one after the other: memory stays
	$(BIN)/python -m tests.hostile.soak --sessions $(SOAKED)

bombs: $(VENV)/.installed-test ## 200 requests that cost much, beside a session that does small ones
	$(BIN)/python -W ignore -m tests.hostile.bombs

chaos: $(VENV)/.installed-test ## train through cut connections and a server that is killed every few seconds
	$(BIN)/python -m tests.client.chaos
	GRADWIRE_LONG_RUNS=20 $(BIN)/python -m pytest -n auto tests/client/test_exactly_once.py -k a_thousand_steps

memory: $(VENV)/.installed-test ## measure what every op takes, and its backward, beside what the account is told
	$(BIN)/python -W ignore -m tests.memory.measure -v

storm: $(VENV)/.installed-test ## ten thousand exceptions of signals' handlers in a program that trains: values stay
	$(BIN)/python -m tests.client.signal_stress --count $(STRUCK) --seed 1
	$(BIN)/python -m tests.client.signal_stress --count $(STRUCK) --seed 2 --uses
	GRADWIRE_LOCAL_STREAM=0 $(BIN)/python -m tests.client.signal_stress --count $(STRUCK) --seed 3

programs: $(VENV)/.installed-test ## run all programs written for PyTorch with both libraries and compare what they print
	GRADWIRE_PROGRAMS=all $(BIN)/python -m pytest -n auto tests/client/test_programs.py

program-table: $(VENV)/.installed-test ## run all programs with both libraries, one thread each; print a table: equal, differs or stopped, elapsed and CPU time
	$(BIN)/python -W ignore -m tests.client.program_table

waiting: $(VENV)/.installed-test ## run the client's tests with every call waiting, all sets of parameters
	GRADWIRE_WAITING=all $(BIN)/python -m pytest -n auto tests/client -k waiting

random-programs: $(VENV)/.installed-test ## draw programs, run them beside PyTorch, print how often they differ and in what
	$(BIN)/python -W ignore -m tests.parity.drawn --programs $(PROGRAMS) --seed $(SEED)

opinfo: $(VENV)/.installed-test ## run PyTorch's own samples of its operators beside PyTorch; count those that agree; needs expecttest
	$(BIN)/python -W ignore -m tests.parity.opinfo --samples $(SAMPLES) --processes 2

random-plans: $(VENV)/.installed-test ## draw programs; compare PyTorch, the ops, the interpreted and the compiled plan
	$(BIN)/python -m tests.engine.compile.drawn_plans --seconds $(FUZZ_SECONDS) --seed $(SEED)

check: $(VENV)/.installed-dev ## lint, type-check, check layers, and compare generated files with their sources
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python tools/generate.py --check
	$(BIN)/python -m tools.sdk_ops --check
	$(BIN)/python -m tools.sdk_stubs --check
	$(BIN)/python tools/diagram.py --check
	$(BIN)/lint-imports

lint: $(VENV)/.installed-dev ## lint, without types and generated files
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.installed-dev ## format, and fix what the linter can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/.installed-dev ## type-check
	$(BIN)/mypy

layers: $(VENV)/.installed-dev ## check that packages import only packages below them
	$(BIN)/lint-imports

stubs: $(VENV)/.installed-test ## regenerate client/gradwire/v1, the SDKs' stubs and, with Node, Studio from proto/
	$(BIN)/python tools/stubs.py
	$(BIN)/python -m tools.sdk_stubs
	$(if $(shell command -v npm),$(MAKE) studio-pages,@echo "Studio has the contract, too: where there is Node, run make studio-pages")

freeze: $(VENV)/.installed-test ## keep the contract of this version under tests/contract, when it is tagged
	$(BIN)/python -m tools.freeze

lock: $(VENV)/.installed-dev ## pin what the container images install, as new as it may be; needs a network
	$(BIN)/python tools/lock.py --upgrade

generate: $(VENV)/.installed-test ## regenerate the clients' typed functions and docs/ops.md from the engine's ops
	$(BIN)/python tools/generate.py
	$(BIN)/python -m tools.sdk_ops

diagram: $(VENV)/.installed-test ## draw docs/architecture.svg from the contracts in pyproject.toml
	$(BIN)/python tools/diagram.py

notebook: $(VENV)/.installed-test ## run examples/leaves.py as a notebook again: examples/leaves.ipynb
	$(BIN)/python tools/notebook.py

docs: $(VENV)/.installed-docs ## build the documentation into build/docs; any warning or broken link is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs

bench: $(VENV)/.installed-dev ## measure; compares with PyTorch in process where torch is installed
	$(BIN)/python -m benchmarks

bench-gate: $(VENV)/.installed-dev ## fail where a ratio to PyTorch is much worse than the one committed; needs a quiet machine
	$(BIN)/python -m benchmarks gate

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name node_modules -prune -exec rm -rf {} +
