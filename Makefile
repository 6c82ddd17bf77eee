# Everything a contributor needs. `make demo` and `make test` install what they need first
# (scripts/setup.sh: idempotent, non-interactive, starts no service).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/margay
TARGET := $(or $(CARGO_TARGET_DIR),target)
LAB := demo

export PATH := $(CACHE)/bin:$(HOME)/.cargo/bin:$(PATH)
export INSTA_UPDATE := no

.PHONY: help setup setup-demo build demo demo-down test lint doc bench cni clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## install tools for tests: cargo-nextest, kubectl, unpacked BGP peers
	@scripts/setup.sh test

setup-demo:
	@scripts/setup.sh demo

build: ## build all executables (dev profile)
	cargo build --locked --workspace --bins

demo: setup-demo build ## a three-node lab cluster with a top-of-rack router; leaves it running
	@$(TARGET)/debug/margayctl lab demo $(LAB)

demo-down: ## stop the demo and remove everything it made
	@$(TARGET)/debug/margayctl lab down $(LAB)

test: setup ## the whole test-suite: unit, property, namespaces, peers, kubectl
	cargo nextest run --locked --workspace --no-fail-fast
	cargo test --locked --workspace --doc --quiet

lint: ## formatting, clippy, licences
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check licenses bans sources; \
	else echo "cargo-deny is not installed: licence check left out (cargo install cargo-deny --locked)" >&2; fi

doc: ## API documentation of all crates
	cargo doc --locked --workspace --no-deps

bench: ## benchmarks; results are printed, figures are kept in benches/README.md
	cargo bench --locked --workspace

cni: ## the CNI executable as shipped: static, small
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile cni \
		--target x86_64-unknown-linux-gnu -p margay-cni

clean: ## remove build output (labs are removed by `margayctl lab down --all`)
	cargo clean
