# The one face of the project: every job is a target here.  `make` alone lists them.
#
# `demo` and `test` start from a bare machine: scripts/setup installs what is missing, and each
# later step does only what has changed.
.DEFAULT_GOAL := help
.PHONY: help setup build demo test sanitize fuzz bench gpu lint format clean

JOBS ?= $(shell nproc)
SANITIZERS := asan ubsan tsan

# Slow tests run only when asked for: make test SLOW=1
TEST_FILTER := $(if $(filter 1,$(SLOW)),,-LE slow)

# Configure and build one preset.  Configuring again takes under a second and notices libraries that
# were installed since.
define build_preset
cmake --preset $(1)
cmake --build --preset $(1)
endef

# Test one preset and leave a JUnit report in its build folder; arguments: name, folder, filter.
define test_preset
ctest --preset $(1) -j $(JOBS) $(3) --output-on-failure \
  --output-junit $(CURDIR)/$(2)/test-report.xml
endef

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything any target needs: packages, .venv
	scripts/setup all

build: ## Build the optimised library, tests and examples into build/, and came-lab where libtorch is there
	scripts/setup build
	$(call build_preset,release)

demo: ## Build, then train a tiny GPT-2 on text with three optimizers and compare them (build/demo/)
	@scripts/demo --announce
	scripts/setup demo
	cmake --preset release
	cmake --build --preset release --target demo
	scripts/demo

test: ## Build, then run every test this machine can run (SLOW=1: the slow ones too)
	scripts/setup test
	$(call build_preset,release)
	$(call test_preset,release,build,$(TEST_FILTER))

sanitize: ## Build and test under the address, undefined-behaviour and thread sanitizers
	scripts/setup build
	$(foreach preset,$(SANITIZERS),$(call sanitize_preset,$(preset)))

define sanitize_preset
$(call build_preset,$(1))
$(call test_preset,$(1),build/$(1),$(TEST_FILTER))

endef

fuzz: ## Fuzz optimizers against an oracle, parsers and the C interface under sanitizers (TARGETS="plan config", SECONDS=600 for each)
	scripts/setup fuzz
	SECONDS_PER_TARGET=$(or $(SECONDS),600) scripts/fuzz $(or $(TARGETS),all)

# Some ten minutes; wants an idle machine.  To keep the second file for the documentation:
# cp build/compare.json bench/results/cpu.json
bench: ## Build, then measure speed (build/bench.json), also beside other implementations (build/compare.json)
	scripts/setup bench
	$(call build_preset,release)
	build/bin/came_bench --benchmark_out=build/bench.json --benchmark_out_format=json
	.venv/bin/python bench/compare.py --json build/compare.json

# No set-up: a GPU machine may have no network.  It brings nvcc, CMake and Python with torch; Ninja and GoogleTest are used
# if they are there.  Some five minutes.  To keep the figures for the documentation: cp build/cuda/gpu.json bench/results/gpu.json
GPU_PYTHON ?= python3
gpu: export PATH := $(PATH):/usr/local/cuda/bin
gpu: ## Build with CUDA, run the GPU tests, measure beside PyTorch (build/cuda/gpu.json); downloads nothing
	cmake --preset cuda -G "$(if $(shell command -v ninja),Ninja,Unix Makefiles)" -DCAME_GPU_PYTHON=$(GPU_PYTHON)
	cmake --build --preset cuda --parallel $(JOBS)
	$(call test_preset,cuda,build/cuda,-L gpu)
	$(GPU_PYTHON) bench/gpu.py --library build/cuda/lib/libcame.so --json build/cuda/gpu.json $(GPU_BENCH)

lint: ## Check formatting, include arrows, file lengths, documentation; run clang-tidy
	scripts/setup lint
	cmake --preset release
	scripts/lint

format: ## Rewrite the C++ and CUDA sources in the project's format
	scripts/setup lint
	scripts/format

clean: ## Remove build/; .venv stays
	rm -rf build
