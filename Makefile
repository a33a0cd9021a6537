# Two commands do all set-up on a fresh Debian 12:  make demo   and   make test
SHELL := /bin/bash
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
TRIPLE := $(shell uname -m)-unknown-linux-gnu
AGENT  := $(TARGET)/$(TRIPLE)/agent/vmio-agent
VMIO   := $(TARGET)/release/vmio
LEAKS  := $(TARGET)/debug/examples/leaks

.PHONY: demo build deb agent agent-arm64 test test-long bench lint clean help

help:
	@echo "make demo       install what is missing, build, and measure this host (about 8 minutes of measuring)"
	@echo "make test       install what is missing, format, clippy, unit, property, root and guest tests"
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

# One line a phase says where the time goes.
phase = @start=$$SECONDS; $(2) || exit 1; printf 'phase %-28s %4d s\n' "$(1)" $$((SECONDS-start))

test:
	$(call phase,packages,scripts/setup build run test)
	$(call phase,format and clippy,$(MAKE) --no-print-directory lint)
	$(call phase,agent,$(MAKE) --no-print-directory agent)
	$(call phase,build tests,cargo test --locked --workspace --no-run)
	$(call phase,unit and property,$(LEAKS) cargo test --locked --workspace)
	$(call phase,root and guest,$(LEAKS) scripts/root-tests)

test-long: test
	$(call phase,agent for aarch64,scripts/setup arm && $(MAKE) --no-print-directory agent-arm64)
	$(call phase,long forms,$(LEAKS) scripts/root-tests long)

bench: agent
	cargo bench --locked --workspace

clean:
	cargo clean
	rm -f vmio-report.html
