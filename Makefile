# Two commands matter to a newcomer: `make run` and `make test`. The logic is in scripts/, which can be called directly too;
# a target here is a name and one line.

.DEFAULT_GOAL := help

# Rust's installer puts cargo here, and not every shell has been told. What is on PATH already comes first.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Arguments for run, bench, test, mutants, fuzz, sanitize, bindings, install-capi, dist, verify-dist, verify-rocm and verify-models, such as:
# make bench ARGS=decode
ARGS ?=
MODEL ?= engine/models/kjv
MODELS_DIR ?= engine/models
PREFIX ?= /usr/local
DESTDIR ?=
ENGINE := cargo run --release --locked --quiet -p ssm-engine --

.PHONY: help
help: ## Print this list
	@echo 'usage: make TARGET [ARGS="..."]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-28s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Set up what is missing, then decode text with the small checkpoint of the repository
	@bash scripts/setup.sh build
	cargo build --release --locked -p ssm-engine
	@$(ENGINE) demo --model $(MODEL) $(ARGS)

.PHONY: test
test: ## Set up what is missing, then everything that CI runs (ARGS="format docs": only these steps)
	@bash scripts/setup.sh
	@bash scripts/test.sh $(ARGS)

.PHONY: test-all
test-all: ## The same on every target of the HIP kernel, and fuzz targets and sanitizers where there is nightly Rust (hours)
	@bash scripts/setup.sh
	@HIP_SIM_TEST_TARGETS=all bash scripts/test.sh $(ARGS)

.PHONY: ports doctor
ports: doctor ## The same as doctor
doctor: ## Print the port table with a reason per row, processor features and switches in force
	@bash scripts/setup.sh build
	@$(ENGINE) doctor $(ARGS)

.PHONY: bench
bench: ## Measure the ports (ARGS go to the benchmark)
	@bash scripts/setup.sh build
	cargo bench --locked -p ssm-update-bench --bench ports -- $(ARGS)

.PHONY: mutants
mutants: ## Prove that the tests find planted faults (ARGS="--list" names them)
	@bash scripts/setup.sh
	@python3 scripts/mutants.py $(ARGS)

.PHONY: fuzz
fuzz: ## Look for inputs that break something, 30 s a target; nightly Rust (ARGS="TARGET --seconds 600")
	@bash scripts/setup.sh build
	@bash scripts/fuzz.sh $(ARGS)

.PHONY: sanitize
sanitize: ## Run the unsafe and the shared parts under address and thread sanitizer and Miri; nightly Rust (ARGS="--help" says more)
	@bash scripts/setup.sh build
	@bash scripts/sanitize.sh $(ARGS)

.PHONY: bindings
bindings: ## Compare the declarations of the HIP library with its headers (ARGS="--help" says more)
	@bash scripts/setup.sh build
	@cargo run --release --locked --quiet -p ssm-update-bindings -- $(ARGS)

.PHONY: install-capi
install-capi: ## Build and install the C interface below PREFIX (ARGS="--help" says more)
	@bash scripts/setup.sh build
	@bash scripts/install-capi.sh --prefix "$(PREFIX)" $(if $(DESTDIR),--destdir "$(DESTDIR)") $(ARGS)

.PHONY: header
header: ## Write include/ssm_update.h from capi/src
	@bash scripts/setup.sh
	cargo test --release --locked --quiet -p ssm-update-capi --test header -- --ignored

.PHONY: abi
abi: ## Record what was added to the C interface in capi/abi (refuses what breaks programs)
	@bash scripts/setup.sh
	cargo test --release --locked --quiet -p ssm-update-capi --test abi_record -- --ignored

.PHONY: dist
dist: ## Make the files of a release in target/dist: source crates, binary archive, Debian packages (ARGS="--help" says more)
	@bash scripts/setup.sh
	@bash scripts/dist.sh $(ARGS)

.PHONY: verify-dist
verify-dist: ## Install what dist made into fresh Debian 12 roots and use it there (root and debootstrap; ARGS="--help" says more)
	@bash scripts/setup.sh
	@bash scripts/verify-dist.sh $(ARGS)

.PHONY: semver
semver: ## Compare the public interface of the crates with the newest release
	@bash scripts/setup.sh
	@bash scripts/semver.sh

.PHONY: prebuilt
prebuilt: ## Make the committed code objects again from hip/ and gpu/ (HIPCC=... names another compiler)
	@bash scripts/setup.sh
	@cargo run --release --locked --quiet -p ssm-update --example prebuilt -- make

.PHONY: verify-prebuilt
verify-prebuilt: ## Prove that the committed code objects come from hip/ and gpu/
	@bash scripts/setup.sh
	@cargo run --release --locked --quiet -p ssm-update --example prebuilt -- verify

.PHONY: verify-kernel-dtype-keys
verify-kernel-dtype-keys: ## Prove that every tensor's dtype is in a kernel's key or in its parameters
	@bash scripts/setup.sh
	cargo test --release --locked -p ssm-update --test kernel_keys

.PHONY: verify-kernel-port-dispatch
verify-kernel-port-dispatch: ## Prove that predicate and dispatch agree, and that nothing else compares back ends
	@bash scripts/setup.sh
	cargo test --release --locked -p ssm-update --test dispatch --test selection

.PHONY: verify-rocm
verify-rocm: ## Every check of the ROCm port, and its speed; on the GPU where there is one, else simulated; with a report (ARGS="--help")
	@bash scripts/setup.sh
	@bash scripts/verify-rocm.sh $(ARGS)

.PHONY: verify-metal
verify-metal: ## Every check of the Metal port; on a Mac also conformance, golden text and bandwidth on its GPU, with a report
	@bash scripts/setup.sh
	@bash scripts/verify-metal.sh

.PHONY: verify-models
verify-models: ## Kernel against graph on every checkpoint of MODELS_DIR, with a report (ARGS="--help" says more)
	@bash scripts/setup.sh build
	@$(ENGINE) verify-models --models-dir $(MODELS_DIR) --report "$${CARGO_TARGET_DIR:-target}/verify-models/report.md" $(ARGS)

.PHONY: kernel-counts
kernel-counts: ## Write the tables of docs/hip-kernel.md from the HIP kernel's code objects
	@bash scripts/setup.sh
	cargo test --release --locked --quiet -p ssm-update --test kernel_page -- --ignored

.PHONY: fmt
fmt: ## Format the sources
	cargo fmt --all

.PHONY: clean
clean: ## Remove everything that was built
	cargo clean
