# demo   a training run that is killed, torn and crashed, and ends as if nothing had happened
# test   everything: unit, property, scenario, end to end, and real trainers (installs what they need)
# check  format, lints, supply chain
# chaos  seeded attacks on the real program (ROUNDS of each kind, SEED, ONLY=kills|stops|journal|damage|copies)
# bench  ratios against peers, in one run
CARGO ?= cargo
VENV ?= .venv-real
TARGET = $(or $(CARGO_TARGET_DIR),target)

ROUNDS ?= 2
SEED ?= 1

.PHONY: all demo test test-rust test-real check chaos bench install-lab install-real

all:
	$(CARGO) build --release -p supervise

demo:
	$(CARGO) build --release -q -p supervise-tests --bins
	$(TARGET)/release/demo

test: test-rust chaos test-real

test-rust: install-lab
	$(CARGO) test --workspace --no-fail-fast

test-real: install-real
	$(CARGO) build -q -p supervise-tests --bins
	$(CARGO) build -q -p supervise-config -p supervise-trainers --examples
	tests/real/run.sh $(VENV) $(TARGET)/debug

install-lab:
	tests/lab/install.sh

install-real:
	tests/real/install.sh $(VENV)

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) deny --offline check bans licenses sources

chaos:
	$(CARGO) build -q -p supervise-tests --bins
	$(TARGET)/debug/chaos --rounds $(ROUNDS) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

bench: install-real
	$(CARGO) build --release -q -p supervise-tests --bins
	VENV=$(abspath $(VENV)) SUPERVISE=$(abspath $(TARGET)/release/supervise) IDLE_WORKER=$(abspath $(TARGET)/release/idle_worker) \
	  LONG_RUN=$(abspath $(TARGET)/release/long_run) MANY_FILES=$(abspath $(TARGET)/release/many_files) SHARDS=$(abspath $(TARGET)/bench/shards) tests/bench/run.sh
