# demo   a training run that is killed, torn and crashed, and ends as if nothing had happened
# test   everything: unit, property, scenario, end to end, and real trainers (installs what they need)
# check  format, lints, supply chain
# bench  ratios against peers, in one run
CARGO ?= cargo
VENV ?= .venv-real
TARGET = $(or $(CARGO_TARGET_DIR),target)

.PHONY: all demo test test-rust test-real check bench install-lab install-real

all:
	$(CARGO) build --release -p supervise

demo:
	$(CARGO) build --release -q -p supervise-tests --bins
	$(TARGET)/release/demo

test: test-rust test-real

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

bench: install-real
	$(CARGO) build --release -q -p supervise-tests --bins
	VENV=$(abspath $(VENV)) SUPERVISE=$(abspath $(TARGET)/release/supervise) IDLE_WORKER=$(abspath $(TARGET)/release/idle_worker) \
	  MANY_FILES=$(abspath $(TARGET)/release/many_files) SHARDS=$(abspath $(TARGET)/bench/shards) tests/bench/run.sh
