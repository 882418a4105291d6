# Every way to build and check the project, in one place. CI runs `make test`, and nothing else.

CARGO ?= cargo
target := $(or $(CARGO_TARGET_DIR),target)
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-vm build dist demo test test-all bench test-kubernetes faults record fmt lint shellcheck clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## provide what the build and the tests need; does nothing when all is there
	@tools/setup

setup-vm: ## also what virtual machines run on and in (about 2 min, once)
	@tools/setup vm

build: ## what a person runs, into target/release (about 5 min the first time)
	@tools/build

dist: ## the same, smaller and faster, for images that are handed out: into target/dist
	@tools/build dist

demo: build ## a VM that moves over a network of its own, on this machine
	GODWIT_PROGRAMS=$(target)/release tools/demo

test: ## everything that proves the software, on this machine alone, with a table at the end (25 min; ARGS=--help lists options)
	@tools/test $(ARGS)

test-all: ## the same, and what takes long: all faults, all deaths, a search of the fuzzer (90 min; ARGS='--resume FILE' goes on)
	@tools/test --all $(ARGS)

test-kubernetes: ## the same tests on the real kube-apiserver (built on first use; needs Go)
	@tools/setup kubernetes
	GODWIT_TEST_SERVER=kubernetes $(CARGO) test --locked -p apiserver --test suite --test differential
	GODWIT_TEST_SERVER=kubernetes $(CARGO) test --locked -p lab --test suite join
	GODWIT_BIN=$(target)/debug/godwit tools/kubernetes/control-plane run --workloads -- tests/lab-node
	$(call on_real_server,tests/kubectl/run)
	$(call on_real_server,tests/kube-rs/run)
	tools/kubernetes/control-plane run --bare -- tools/kubernetes/facts check

faults: ## every fault at every moment of a migration, in labs (about 30 min); GODWIT_SEED draws other delays
	@tools/test --all --only 'fault: ' $(ARGS)

bench: dist ## every benchmark, each beside what it is measured against (about 30 min on a quiet machine)
	@tools/setup kubernetes
	GODWIT_BIN=$(target)/dist/godwit $(CARGO) run --profile dist --locked -p bench-apiserver
	@tools/setup whereabouts
	eval "$$(tools/setup --print-env)" && $(CARGO) run --profile dist --locked -p bench-ipam -- --check
	$(CARGO) run --profile dist --locked -p bench-tunnel -- --check
	eval "$$(tools/setup --print-env)" && $(CARGO) run --profile dist --locked -p bench-migrate -- --check

record: ## write the recorded answers anew, from the real server
	@tools/setup kubernetes
	$(call on_real_server,tests/kubectl/run --record)
	GODWIT_RECORD=1 GODWIT_TEST_SERVER=kubernetes $(CARGO) test --locked -p apiserver --test differential

fmt: ## format the code
	$(CARGO) fmt --all

lint: shellcheck ## clippy and shellcheck, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

clean: ## remove what was built here (the cache of tools/setup stays)
	$(CARGO) clean

# --- parts of `make test` that need no build ---------------------------------------------------------------------------------------------

shellcheck:
	@shellcheck -x $(shell grep -rlE '^#!/usr/bin/env bash' tools tests .ci)

# Runs a suite with the kubeconfig of a server that lives only as long as the suite runs.
on_real_server = tools/kubernetes/control-plane run -- sh -c '$(1) "$$KUBECONFIG"'
