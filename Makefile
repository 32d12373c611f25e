# `make run` starts the demo, `make test` checks everything; both install what they need.

CARGO ?= cargo

.DELETE_ON_ERROR:
.PHONY: run release install test format lint page page-if-possible page-packages check-page build-tests rust browser screenshots generated soak bench bench-page policy-report generate deny tools test-tools bridge-clients test-bridges

# Built for a first look: ready soon, not the fastest, and without an allocator of its own.
quick := --profile quick --no-default-features
run: tools page-if-possible
	$(CARGO) run $(quick) -- demo $(if $(DATA),--data $(DATA))

# The optimised program, target/dist/pvp: what is packaged and what the benchmarks measure.
release: tools page-if-possible
	$(CARGO) build --profile dist
	@bytes=$$(wc -c < target/dist/pvp); echo "target/dist/pvp: $$bytes bytes"; \
	[ $$bytes -le $(MAX_BYTES) ] || { echo "that is more than $(MAX_BYTES)"; exit 1; }

# More than it takes, so that a jump is noticed; docs/performance.md has the aim.
MAX_BYTES := 32000000

# Puts pvp where the shell finds it. PROFILE=dist installs the optimised program, BIN=DIR elsewhere.
PROFILE ?= quick
install: tools page-if-possible
	$(CARGO) build $(if $(filter quick,$(PROFILE)),$(quick),--profile $(PROFILE))
	@.ci/install "target/$(PROFILE)/pvp" "$(BIN)"

test: tools test-tools
	@MAKE="$(MAKE)" .ci/steps check-page page format lint build-tests rust browser generated

# The page that the server embeds. It is built again when a file that it is made of has changed.
page: web-client/dist/index.html

web-client/dist/index.html: $(shell find web-client/src web-client/public protocol/generated/pvp.ts -type f 2>/dev/null) \
		$(wildcard web-client/*.html web-client/*.json web-client/*.ts web-client/*.mjs) | page-packages
	cd web-client && npm run --silent build

# Without Node.js, or with PAGE=no, the program shows how to build the page in its place.
PAGE ?= $(if $(shell node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null && command -v npm),yes,no)
page-if-possible: $(if $(filter yes,$(PAGE)),page)
	@[ "$(PAGE)" = yes ] || echo "the page is left out: install Node.js 20 or later with npm to build it"

# What the page is built with, from npm, at the versions of the lock file.
page-packages:
	@$(call npm_ci,web-client,to build the page)

check-page: page-packages
	cd web-client && npm run --silent check && npm run --silent test

# The program as the tests have it, so that nothing is built a second time.
build-program := $(CARGO) test --workspace --no-run --test cli

# The page in Chromium, with a real server and agent.
browser: page
	$(build-program)
	cd web-client && PVP_BIN="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/pvp" npm run --silent test:browser

# The pictures in docs/screenshots. Look at each of them afterwards; tmux draws the terminal.
screenshots: page
	$(build-program)
	cd web-client && PVP_BIN="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/pvp" npm run --silent screenshots

# Installs the packages of a directory if its lock file has changed since. npm would empty a directory
# that is only linked to, and is somebody else's.
define npm_ci
	cd $(1); \
	if ! command -v npm >/dev/null; then \
		echo "Node.js with npm is missing: install version 20 or later $(2)"; \
		exit 1; \
	elif [ -L node_modules ]; then \
		echo "the packages are those of $$(readlink node_modules), which are left alone"; \
	elif ! cmp -s package-lock.json node_modules/.installed-lock.json; then \
		npm ci --no-audit --no-fund && cp package-lock.json node_modules/.installed-lock.json; \
	fi
endef

# A C compiler for the bundled SQLite; util-linux for the fault tests, curl and jq for the page of commands.
tools:
	@command -v $(CARGO) >/dev/null || { echo "Rust (cargo) is needed"; exit 1; }
	@missing=""; \
	command -v cc >/dev/null || missing="$$missing build-essential"; \
	command -v prlimit >/dev/null || missing="$$missing util-linux"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	command -v jq >/dev/null || missing="$$missing jq"; \
	$(install_missing)

# Node.js and a browser, for the tests of the page.
test-tools:
	@missing=""; \
	command -v npm >/dev/null || missing="$$missing nodejs npm"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	$(install_missing)

install_missing = if [ -n "$$missing" ]; then \
		echo "installing$$missing"; apt-get update -q && apt-get install -qy $$missing; \
	fi

# The agent programs that the bridge tests run, from npm, at the versions of the lock file.
bridge-clients:
	@$(call npm_ci,tests/bridges/clients,to run the bridge tests with real clients)

# Real clients with a scripted model; writes what passed to docs/bridges.md. CLIENTS="claude codex"
# runs only these, on each of their routes, CLIENTS=qwen_acp only that route, and
# SCENARIOS=approve,reject only those.
test-bridges: tools bridge-clients
	$(CARGO) test --workspace --test bridges --no-run
	PVP_TEST_BRIDGES=1 $(if $(SCENARIOS),PVP_TEST_SCENARIOS=$(SCENARIOS)) RUST_BACKTRACE=0 \
		timeout --kill-after=10 $(BRIDGES_SECONDS) $(CARGO) test --workspace --test bridges -- --test-threads=16 $(CLIENTS)

# Far more than it takes: a client that hangs must not hold up everything.
BRIDGES_SECONDS ?= 900

format:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p pvp-protocol --all-targets --features generate -- -D warnings
	$(CARGO) clippy -p pvp --no-default-features -- -D warnings

build-tests:
	$(CARGO) test --workspace --no-run

# Most tests wait for other processes, so that more of them than cores run at a time.
rust:
	PROPTEST_RNG_SEED=1 RUST_TEST_THREADS=$${RUST_TEST_THREADS:-4} $(CARGO) test --workspace --no-fail-fast

# The JSON Schema and the TypeScript in the repository are what the types say.
generated:
	$(CARGO) test $(GENERATED)

GENERATED := --workspace --features pvp-protocol/generate --test protocol generated::

generate:
	PVP_BLESS=1 $(CARGO) test $(GENERATED)
	PVP_BLESS=1 $(CARGO) test -p pvp --test docs -- pages::the_settings tui::the_tables

# Long rounds of what `make test` does briefly, and the real clients.
soak: test-bridges
	PROPTEST_CASES=20000 $(CARGO) test --release -p pvp-policy --test policy properties::
	PVP_SEED=$$(date +%s) PVP_ROUNDS=20000 $(CARGO) test --release -p pvp-policy --test policy differential::
	PVP_SEED=$$(date +%s) PVP_ROUNDS=300000 $(CARGO) test --release -p pvp-policy --test policy generator::recorded_runs::
	PVP_SEED=$$(date +%s) PVP_ROUNDS=30000 $(CARGO) test --release -p pvp-policy --test policy generator::real_runs::
	PROPTEST_CASES=20000 $(CARGO) test --release -p pvp-session --test session random::
	PVP_ROUNDS=200 $(CARGO) test --release -p pvp --test recovery server_killed::
	PVP_ROUNDS=200 $(CARGO) test --release -p pvp --test executor -- running:: sandbox::without_the_sandbox
	PVP_ROUNDS=200 $(CARGO) test --release -p pvp --test recovery random_kills::
	MEMORY_SOAK_SECONDS=$${MEMORY_SOAK_SECONDS:-120} MEMORY_CONNECTIONS=0 MEMORY_BROADCAST_MIB=0 MEMORY_BUSY_SESSIONS=0 $(CARGO) bench --profile dist --bench memory

bench:
	$(CARGO) bench --profile dist

# How large and how fast the page is, in Chromium. BENCH_SECONDS sets how long output runs.
bench-page: page
	$(CARGO) build --profile dist
	cd web-client && PVP_BIN="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/dist/pvp" npm run --silent bench

# How many harmless commands of coding agents need approval, and which.
policy-report:
	$(CARGO) run -q -p pvp-policy --example report

deny:
	cargo deny check
