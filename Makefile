# demo   builds the program for `supervise demo`, a training run that is broken four times and recovers, and runs it
# test   what a change must pass: unit, property, scenario, end to end, and real trainers (installs what they need)
# quick  what an edit needs: unit, property and scenario tests, in a minute or two
# real   the tests with real trainers alone (ONLY=areal_recovery: the scripts with that in their name; FULL=1: all their cases, before a release)
# bless  writes what comes out today into golden files and generated pages; read the difference before it is committed
# install  program, man pages, completions, examples and systemd unit below PREFIX (DESTDIR, BIN=a program that is built already)
# dist   packages below DIST: wheel, .deb, tarball, bill of materials (PROGRAM=one that is built already)
# site   the documentation as a site, in target/site; fails if a link or an anchor leads nowhere, or a search finds nothing
# check  words, format, lints, the house's own rules, supply chain
# chaos  seeded attacks on the real program (ROUNDS of each kind, SEED, ONLY=kills|stops|journal|damage|copies)
# league  seeded faults against `supervise` and its peers (FAULTS, SEED, WHO=supervise,bash_loop,torchrun, ONLY=a kind, JOBS at a time, LIMIT seconds
#         a game, PROGRAMS=target/release). It resumes; one game: SEED=7 NUMBER=4711 WHO=supervise KEEP=1
# league-report  the page of what is in RESULTS
# bench  ratios against peers, in one run
# full   before a release: all cases of the real trainers, every call of a merge, a migration and a reshard disturbed, and the three below
# full-places  every place where it runs: systemd, Slurm and Ray as CI has them, and what CI leaves out: a worker of Ray's that spins, PPO and AReaL
#              over Ray on two nodes, a site's Ray, areal's other ways of starting its ranks
# full-hangs  every hang of a real trainer: verl's and areal's as CI has them, three more of verl's SFT, two of its PPO, five of areal's,
#             and the end of its rollout server
# full-page  the pages at their limits, SECONDS of twenty clients (3600), screenshots below OUT
# recipes  what docs/recipes.md shows: run, or read by the launcher itself
# simulate-picture  docs/save-interval-cost.svg
# page-pictures  the pictures of the pages in docs/serve, and the terminal of the quickstart
CARGO ?= cargo
VENV ?= .venv-real
TARGET = $(or $(CARGO_TARGET_DIR),target)

PREFIX ?= /usr/local
BIN ?= $(TARGET)/release/supervise
SHARE = $(DESTDIR)$(PREFIX)/share
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system

DIST ?= $(TARGET)/dist

FAULTS ?= 100
WHO ?= supervise,bash_loop
JOBS ?= 8
LIMIT ?= 120
PROGRAMS ?= $(TARGET)/debug
RESULTS ?= $(TARGET)/league/$(SEED)$(if $(ONLY),.$(ONLY)).jsonl

ROUNDS ?= 2
SECONDS ?= 3600
OUT ?= $(TARGET)/full-page
SEED ?= 1

.PHONY: all install dist site demo test test-rust build-tests test-league test-packages test-real quick real bless check chaos bench full full-page full-places full-hangs page-pictures simulate-picture recipes install-testbed install-real install-site

all: export BUILD_OF_COMMIT ?= $(shell git describe --always --dirty --abbrev=40 --match='' 2>/dev/null)
all:
	$(CARGO) build --release -p supervise

$(TARGET)/release/supervise: all

install: $(BIN)
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d $(UNITS)
	install -Dm755 $(BIN) $(DESTDIR)$(PREFIX)/bin/supervise
	$(BIN) man $(SHARE)/man/man1
	$(BIN) completions bash >$(SHARE)/bash-completion/completions/supervise
	$(BIN) completions zsh >$(SHARE)/zsh/site-functions/_supervise
	$(BIN) completions fish >$(SHARE)/fish/vendor_completions.d/supervise.fish
	install -d $(SHARE)/supervise && cp -r examples $(SHARE)/supervise/
	sed 's#/usr/bin/supervise#$(PREFIX)/bin/supervise#' systemd/supervise@.service >$(UNITS)/supervise@.service

dist:
	packaging/dist.sh $(DIST) $(PROGRAM)

# Read it with `python3 -m http.server -d target/site`.
site:
	packaging/site.sh $(TARGET)/site

demo:
	$(CARGO) build -q --profile demo -p supervise
	$(TARGET)/demo/supervise demo

# Built once: a build beside the tests would put other files in the place of programs that they are starting.
test: build-tests
	+BUILT=1 tests/parts.sh "test-rust chaos test-league test-packages site" test-real

# Most tests wait for processes: more of them run at once than there are cores.
test-rust: export RUST_TEST_THREADS ?= 8
test-rust: install-testbed
	$(CARGO) test --workspace --no-fail-fast

# All of it in one way, programs and examples too: another choice of crates would be another build of what they share,
# under programs that are running.
build-tests:
	$(if $(BUILT),,$(CARGO) test -q --workspace --no-run)

# The program of the tests stands in for that of a release, which takes minutes to build.
test-packages: install-testbed build-tests
	packaging/dist.sh $(TARGET)/dist-debug $(TARGET)/debug/supervise
	tests/packages.sh $(TARGET)/dist-debug

# A game of each kind, a hang, and two that a bash loop must lose.
test-league: build-tests
	python3 -m unittest discover -q -s tests/league
	python3 tests/league/league.py check --programs $(TARGET)/debug

test-real: install-real build-tests
	ONLY=$(ONLY) tests/real/run.sh $(VENV) $(TARGET)/debug

real: test-real

bless: export UPDATE_GOLDEN = 1
bless: export UPDATE_DOCS = 1
bless:
	$(CARGO) test -q -p supervise-core --test scenarios
	$(CARGO) test -q -p supervise-checkpoint --test damage_rates
	$(CARGO) test -q -p supervise --test cli -- docs page
	$(CARGO) test -q -p supervise-tests --test hazards -- page

quick:
	$(CARGO) test -q -p supervise-config -p supervise-core -p supervise-checkpoint -p supervise-trainers

install-testbed:
	tests/testbed/install.sh

install-real:
	tests/real/install.sh $(VENV)

install-site:
	packaging/site.sh install

check:
	tests/words.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test -q --workspace --test house
	$(CARGO) deny --offline check bans licenses sources

chaos: build-tests
	$(TARGET)/debug/chaos --rounds $(ROUNDS) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

league: build-tests
	python3 tests/league/league.py play --programs $(PROGRAMS) --python $(VENV)/bin/python --results $(RESULTS) --seed $(SEED) --faults $(FAULTS) \
	  --who $(WHO) --jobs $(JOBS) --limit $(LIMIT) $(if $(NUMBER),--number $(NUMBER)) $(if $(ONLY),--only $(ONLY)) $(if $(KEEP),--keep)

league-report:
	python3 tests/league/league.py report --page docs/league.md --json docs/league.json $(RESULTS)

bench: install-real
	$(CARGO) build --release -q -p supervise-tests --bins
	VENV=$(abspath $(VENV)) SUPERVISE=$(abspath $(TARGET)/release/supervise) IDLE_WORKER=$(abspath $(TARGET)/release/idle_worker) \
	  LONG_RUN=$(abspath $(TARGET)/release/long_run) MANY_FILES=$(abspath $(TARGET)/release/many_files) SHARDS=$(abspath $(TARGET)/bench/shards) tests/bench/run.sh

# What `full-places` and `full-hangs` share with the real trainers' cases runs once.
full: export FULL = 1
full: install-testbed install-real build-tests
	ONLY= tests/real/run.sh $(VENV) $(TARGET)/debug
	EVERY_CALL=1 $(CARGO) test -p supervise-tests --test migrate --test elastic --test merge
	+BUILT=1 $(MAKE) full-places PLACES=
	+BUILT=1 $(MAKE) full-hangs HANGS=
	+$(MAKE) full-page

PLACES ?= slurm_gang ray_nodes ray_recovery areal_launchers
HANGS ?= stalls

full-places: export FULL = 1
full-places: install-testbed install-real build-tests
	$(CARGO) test -p supervise-tests --test systemd --test slurm --test slurm_nodes -- --nocapture
	for part in $(PLACES); do ONLY=$$part tests/real/run.sh $(VENV) $(TARGET)/debug || exit 1; done
	$(VENV)/bin/python tests/real/ray_nodes.py $(TARGET)/debug --spins
	$(VENV)/bin/python tests/real/ray_nodes.py $(TARGET)/debug --ppo
	$(VENV)/bin/python tests/real/ray_loopback.py $(TARGET)/debug
	$(VENV)/../.venv-areal/bin/python tests/real/areal_nodes.py $(TARGET)/debug

full-hangs: export FULL = 1
full-hangs: install-real build-tests
	for part in $(HANGS); do ONLY=$$part tests/real/run.sh $(VENV) $(TARGET)/debug || exit 1; done
	$(VENV)/bin/python tests/real/ppo_stalls.py $(TARGET)/debug --sleeps
	$(VENV)/bin/python tests/real/stalls.py $(TARGET)/debug --more
	$(VENV)/../.venv-areal/bin/python tests/real/areal_stalls.py $(TARGET)/debug --ppo

page-pictures: install-testbed build-tests
	python3 tests/bench/page_pictures.py $(TARGET)/debug
	python3 docs/terminal_cast.py $(TARGET)/debug

simulate-picture:
	$(CARGO) build -q -p supervise
	docs/save_interval_cost.py $(TARGET)/debug/supervise

recipes: build-tests
	python3 tests/recipes.py $(TARGET)/debug

full-page: install-testbed
	$(CARGO) build --release -q -p supervise-tests --bins
	python3 tests/bench/full_page.py $(TARGET)/release/supervise $(TARGET)/release/long_run $(OUT) $(SECONDS)
