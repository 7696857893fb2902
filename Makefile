# `make help` lists the targets.

GO     ?= go
LINT   := bin/golangci-lint
SHELLS := scripts/bench scripts/bench-growth scripts/bench-processes scripts/demo scripts/fuzz scripts/install-deps scripts/lab-kernel scripts/packages scripts/packages-test scripts/soak scripts/stress scripts/units-test .ci/run dist/power/apcupsd-doshutdown dist/power/apcupsd-battery \
	test/lab/guest/init test/lab/guest/setup test/lab/guest/start
# Build with RDMA adapters if their libraries are installed. Native FLUSH needs those of
# rdma-core 45. If the system's are older, the lab's guests use those in NEWER.
PKG    = PKG_CONFIG_PATH='$(PKG_CONFIG_PATH)' pkg-config
TAGS   = $(shell $(PKG) --exists libibverbs librdmacm 2>/dev/null && { printf verbs; \
	$(PKG) --atleast-version=1.14.45 libibverbs && printf ,verbs_flush; })
NEWER := $(CURDIR)/bin/rdma-core/usr/lib/$(shell uname -m)-linux-gnu/pkgconfig
TAGGED = $(addprefix -tags=,$(TAGS))
LAB    := kernel=$$(scripts/lab-kernel) && PMNBD_LAB_KERNEL=$$kernel

.PHONY: help build demo demo-deps test bench bench-mirror bench-growth soak stress fuzz lab-deps lab smoke lab-bench lab-shell lint check cross packages packages-test clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F "\t" "{ printf \"%-9s %s\\n\", \$$1, \$$2 }"

build: ## build bin/pmnbd, bin/pmnbd-target and bin/pmnbd-bench
	CGO_ENABLED=$(if $(TAGS),1,0) $(GO) build -trimpath $(TAGGED) -o bin/ ./cmd/...

demo-deps: build
	@scripts/install-deps demo

demo: ## run a device on loopback: verified work, then what an fsync costs: bin/demo.html
	@scripts/demo $(MAKE) --no-print-directory demo-deps

# Unless told otherwise the race detector has each process sleep for a second before it ends.
test: ## run every test with the race detector, end to end too (TESTFLAGS=-v to see each)
	scripts/install-deps test newer-qemu
	GORACE="atexit_sleep_ms=50 $$GORACE" $(GO) test -race -timeout 30m $(TAGGED) $(TESTFLAGS) ./...

bench: ## compare with a chain of two nbdkits and with a floor, and encrypted with clear: ratios as Markdown tables
	@scripts/bench
	@scripts/bench floor
	@scripts/bench encrypted
	@scripts/bench nbd-tls

bench-mirror: ## compare mirrors of two and of three with a region alone: ratios as Markdown tables; time a resync
	@scripts/bench mirror 2
	@scripts/bench mirror 3
	@scripts/bench resync

bench-growth: ## measure how cost grows with connections, lanes, window, ranges, region and request, ten minutes: bin/growth.json
	@scripts/bench-growth

soak: ## run what takes too long for CI, half an hour and more (SOAK=seconds)
	scripts/install-deps test newer-qemu
	scripts/soak

stress: ## run each package's tests 500 times, slow ones 20, under load; hours (PACKAGES=./nbd COUNT= SLOW= DELAYS=1)
	scripts/install-deps test newer-qemu
	TAGS=$(TAGS) scripts/stress

fuzz: ## run every fuzz target, two minutes in all (FUZZTIME=seconds)
	scripts/fuzz

lab-deps: # first: it installs what decides how build builds
	scripts/install-deps lab $(LABDEPS)

lab lab-bench lab-shell: export PKG_CONFIG_PATH := $(NEWER):$(PKG_CONFIG_PATH)
lab lab-bench lab-shell: LABDEPS = newer-rdma-core

lab: lab-deps build ## run every test of the lab in virtual machines (RUN=regexp of tests)
	$(LAB) $(GO) test -count=1 -timeout 4h -p 1 -v $(TAGGED) -run '$(RUN)' ./test/lab ./rdma/verbs ./ublk

# go test's -timeout is per package: a later one gets what is left of six minutes for all.
smoke: lab-deps build ## run the part of the lab that CI runs, six minutes at most
	$(LAB) && export PMNBD_LAB_KERNEL && end=$$(($$(date +%s) + 360)) && ok=true && \
	for package in ./test/lab ./rdma/verbs; do \
		now=$$(date +%s); \
		$(GO) test -count=1 -timeout $$((end > now ? end - now : 1))s -v $(TAGGED) -run '^TestSmoke' $$package || ok=false; \
	done && $$ok

lab-bench: LABDEPS += lab-bench
lab-bench: lab-deps build ## measure methods and block devices: bin/methods.json, bin/devices.json, 20 minutes (RUN=devices: a part)
	$(LAB) PMNBD_LAB_BENCH=$(CURDIR)/bin $(GO) test -count=1 -timeout 60m -v $(TAGGED) -run '^TestBench$$$(addprefix /,$(RUN))' ./test/lab

lab-shell: lab-deps build ## open a shell in a guest of the lab (SETUP='rxe devdax nbd')
	$(LAB) $(GO) run $(TAGGED) ./test/lab/shell $(SETUP)

lint: $(LINT) ## run the linter and shellcheck
	scripts/install-deps lint
	$(LINT) run ./...
	$(if $(TAGS),$(LINT) run --build-tags=$(TAGS) ./...)
	shellcheck $(SHELLS)

check: lint ## run vet, gofmt and lint
	$(GO) vet ./...
	$(if $(TAGS),$(GO) vet $(TAGGED) ./...)
	@files=$$(find . -path ./bin -prune -o -name '*.go' -exec gofmt -l {} +); [ -z "$$files" ] || { echo "not as gofmt has it:"; echo "$$files"; exit 1; }

cross: ## build for every supported architecture, without cgo
	for arch in amd64 arm64; do CGO_ENABLED=0 GOARCH=$$arch $(GO) build -o /dev/null ./... || exit 1; done

packages: bin/nfpm ## build Debian packages and RPMs into bin/packages
	GO='$(GO)' scripts/packages

packages-test: packages ## install, upgrade, use and remove the packages in clean roots; boot the units with systemd; run lintian
	scripts/install-deps packages
	scripts/packages-test

clean: ## remove bin/
	rm -rf bin

bin/nfpm: tools/packages/go.mod tools/packages/go.sum
	cd tools/packages && $(GO) build -o ../../bin/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm

# This takes about two minutes the first time; Go's build cache keeps the result.
$(LINT): tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
