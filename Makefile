# Two commands do all set-up on a fresh Debian 12:  make demo   and   make test
SHELL := /bin/bash
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
TRIPLE := $(shell uname -m)-unknown-linux-gnu
AGENT  := $(TARGET)/$(TRIPLE)/agent/vmio-agent
VMIO   := $(TARGET)/release/vmio
BUILT  := $(TARGET)/tests.json
SUITE  := $(TARGET)/debug/suite run --built $(BUILT) --dir $(TARGET)/suite --phases $(TARGET)/phases

.PHONY: demo build deb agent agent-arm64 test test-long test-steady test-one check tests benches images bench lint clean help

help:
	@echo "make demo       install what is missing, build, and measure this host (4 to 6 minutes of measuring)"
	@echo "make test       install what is missing, format, clippy, unit, property, root and guest tests"
	@echo "make check      format, clippy, and the unit tests of the crates that changed since the last time"
	@echo "make test-one TEST=NAME  build, and run the tests whose names contain this"
	@echo "make test-steady N=10    the whole N times, with a table of what failed and what is slow"
	@echo "make test-long  the long forms: 50 random kills, a planted driver found and proven, decoder inputs"
	@echo "make bench      benchmarks (ratios and times, no assertion)"
	@echo "make build      install what is missing, build $(VMIO) and its static helpers"
	@echo "make agent-arm64  the static helpers for guests of 64-bit ARM, with a compiler for them (130 MB of downloads)"
	@echo "make deb        one Debian package of it, in $(TARGET)/deb"

# Static programs: the agent is the init of vmio's guest image; the generator of datagrams (vmio-udp) and the kernels that
# keep a processor busy (vmio-cpu) run on both sides. --target keeps the flag away from build scripts and procedural
# macros.
agent:
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked -q -p vmio-node --bin vmio-agent --bin vmio-udp --bin vmio-cpu --profile agent --target $(TRIPLE)
	@scripts/agent-arm64 $(TARGET)

# The same for guests of 64-bit ARM; docs/arm.md.
agent-arm64:
	scripts/agent-arm64 $(TARGET) fetch

build:
	@scripts/setup build
	@$(MAKE) --no-print-directory agent
	cargo build --locked --release -p vmio

# One package: needs neither cargo nor clang where it is installed.
deb: build
	scripts/deb $(VMIO) $(TARGET)/$(TRIPLE)/agent $(TARGET)/deb

demo:
	@scripts/setup build run
	@$(MAKE) --no-print-directory build
	@echo
	$(VMIO) tax --quick --yes --html vmio-report.html

lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

# The tests, built by clippy's own driver: lints are told while the code that they are of is compiled, once, where
# `cargo clippy` would compile all that it stands on a second time. Benches are linted, too, and run by `make bench`.
tests benches: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
tests benches: export CLIPPY_ARGS := -Dwarnings__CLIPPY_HACKERY__
tests:
	cargo test --locked --workspace --no-run --message-format=json-render-diagnostics > $(BUILT).new
	@mv $(BUILT).new $(BUILT)

benches: tests
	cargo build --locked --workspace --benches

# What guests and the lab host boot from.
images: agent tests
	@scripts/test-images $(TARGET)

# One line a phase says where the time goes; the suite tells them once more at its end.
phase = @start=$$SECONDS; $(2) || exit 1; printf '%6d s  %s\n' $$((SECONDS-start)) "$(1)" | tee -a $(TARGET)/phases

# The agent and the tests are built side by side. Images are waited for mostly (downloads), while benches are built.
define built
	@mkdir -p $(TARGET) && rm -f $(TARGET)/phases
	$(call phase,packages,scripts/setup build run test)
	$(call phase,format,cargo fmt --all --check)
	$(call phase,agent$(,) clippy$(,) build$(,) images,$(MAKE) --no-print-directory -j2 --output-sync=target images benches)
endef
, := ,

test:
	@rm -f $(TARGET)/tested
	$(built)
	$(call phase,tests,$(SUITE) --again)
	@scripts/tested $(TARGET)

test-steady:
	$(built)
	$(SUITE) --repeat $(or $(N),10) --table $(TARGET)/suite/steady.md

test-one: agent tests
	$(SUITE) '$(TEST)'

check: export CARGO_INCREMENTAL := 1
check:
	@mkdir -p $(TARGET) && rm -f $(TARGET)/phases
	$(call phase,format,cargo fmt --all --check)
	$(call phase,clippy,cargo clippy --locked -q --workspace --all-targets -- -D warnings)
	$(call phase,tests of what changed,scripts/check $(TARGET))

test-long: test
	$(call phase,agent for aarch64,scripts/setup arm && $(MAKE) --no-print-directory agent-arm64)
	$(call phase,images,scripts/test-images $(TARGET) long)
	$(call phase,long forms,$(SUITE) --long --lanes 1)

bench: agent
	cargo bench --locked --workspace

clean:
	cargo clean
	rm -f vmio-report.html
