# What each target is for: `make help`.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# The end-to-end tests make namespaces, so they run as root.
RUNNER = --config 'target."cfg(unix)".runner = "scripts/as-root-if-e2e.sh"'

SEEDS ?= 100000

.DEFAULT_GOAL := help
.PHONY: help setup build test simulate demo lint fmt install clean

help: ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: ## Install the Debian packages that are missing
	@scripts/setup.sh

build: ## The optimized program, target/release/podherd
	$(CARGO) build --release --locked

test: setup ## Every test: unit, scenario, end to end with Podman and etcd
	$(CARGO) test --locked --no-fail-fast $(RUNNER)

simulate: ## SEEDS random histories of the controller, on all cores
	SEEDS=$(SEEDS) $(CARGO) test --locked --profile simulation --test simulation every_history -- --nocapture

demo: setup ## Deploy, request, update and remove an app, then clean up
	$(CARGO) build --locked
	@scripts/demo.sh target/debug/podherd

lint: ## Formatting, clippy, documentation, licenses and sources of dependencies
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps --document-private-items
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --locked
	$(CARGO) deny --locked check bans licenses sources

fmt: ## Format the code
	$(CARGO) fmt

install: setup build ## Copy the program to $(DESTDIR)$(PREFIX)/bin
	install -D -m 755 target/release/podherd $(DESTDIR)$(PREFIX)/bin/podherd

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf .demo
