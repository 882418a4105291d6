# Every way to build and check the project, in one place. CI runs `make test`, and nothing else.

CARGO ?= cargo
target := $(or $(CARGO_TARGET_DIR),target)
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-vm build demo test bench test-kubernetes faults record fmt fmt-check lint rust launcher-image kubectl kube-rs fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## provide what the build and the tests need; does nothing when all is there
	@tools/setup

setup-vm: ## also what virtual machines run on and in (about 2 min, once)
	@tools/setup vm

build: setup-vm ## release binaries, into target/release
	$(CARGO) build --release --locked -p godwit -p virt-launcher
	$(CARGO) rustc --release --locked -p godwit-cni --bin godwit-cni -- $(static)

demo: build ## a VM that moves over a network of its own, on this machine
	GODWIT_PROGRAMS=$(target)/release tools/demo

test: setup-vm fmt-check lint rust launcher-image kubectl kube-rs fuzz ## everything that can be checked on this machine alone

test-kubernetes: ## the same tests on the real kube-apiserver (built on first use; needs Go)
	@tools/setup kubernetes
	GODWIT_TEST_SERVER=kubernetes $(CARGO) test --locked -p apiserver --test suite --test differential
	GODWIT_TEST_SERVER=kubernetes $(CARGO) test --locked -p lab --test suite join
	GODWIT_BIN=$(target)/debug/godwit tools/kubernetes/control-plane run --workloads -- tests/lab-node
	$(call on_real_server,tests/kubectl/run)
	$(call on_real_server,tests/kube-rs/run)
	tools/kubernetes/control-plane run --bare -- tools/kubernetes/facts check

faults: setup-vm ## every fault at every moment of a move, in a lab (about 30 min); GODWIT_SEED draws other delays
	$(debug_programs)
	GODWIT_FAULTS=1000 $(own_mounts) $(CARGO) test --locked --workspace --test lab faults -- --nocapture

bench: build ## every benchmark, each beside what it is measured against (about 30 min on a quiet machine)
	@tools/setup kubernetes
	GODWIT_BIN=$(target)/release/godwit $(CARGO) run --release --locked -p bench-apiserver
	@tools/setup whereabouts
	eval "$$(tools/setup --print-env)" && $(CARGO) run --release --locked -p bench-ipam -- --check
	$(CARGO) run --release --locked -p bench-tunnel -- --check
	eval "$$(tools/setup --print-env)" && $(CARGO) run --release --locked -p bench-migrate -- --check

record: ## write the recorded answers anew, from the real server
	@tools/setup kubernetes
	$(call on_real_server,tests/kubectl/run --record)
	GODWIT_RECORD=1 GODWIT_TEST_SERVER=kubernetes $(CARGO) test --locked -p apiserver --test differential

fmt: ## format the code
	$(CARGO) fmt --all

lint: ## clippy and shellcheck, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	shellcheck -x $(shell grep -rlE '^#!/usr/bin/env bash' tools tests .ci)

clean: ## remove what was built here (the cache of tools/setup stays)
	$(CARGO) clean

# --- parts of `make test` ------------------------------------------------------------------------------------------------------------

fmt-check:
	$(CARGO) fmt --all --check

# The tests start the programs themselves, so they are built first.
rust:
	$(debug_programs)
	$(own_mounts) $(CARGO) test --locked --workspace --no-fail-fast

launcher-image: # libvirt in the launcher's root file system
	tests/launcher-image

kubectl: # the kubectl suite on our server
	$(debug_programs)
	$(call on_our_server,tests/kubectl/run)

kube-rs: # kube-rs' own tests on our server
	$(debug_programs)
	$(call on_our_server,tests/kube-rs/run)

fuzz: # made-up input for what reads input that we did not write
	tools/fuzz

# A plugin runs on nodes whose libraries are not ours; and it starts in half the time.
static = -C target-feature=+crt-static -C relocation-model=static
# With the features of the whole workspace, as the tests have them: what they share is built once.
debug_programs = $(CARGO) build --locked --workspace --bin godwit --bin virt-launcher --bin godwit-cni
# What a killed test leaves mounted goes with the last process of its namespace.
own_mounts = unshare --mount --propagation slave
# Both run a suite with the kubeconfig of a server that lives only as long as the suite runs.
on_our_server = GODWIT_BIN=$(target)/debug/godwit tools/with-apiserver sh -c '$(1) "$$KUBECONFIG"'
on_real_server = tools/kubernetes/control-plane run -- sh -c '$(1) "$$KUBECONFIG"'
