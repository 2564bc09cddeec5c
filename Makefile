# Start with `make demo`, which shows the tool, and `make test`, which tests it.

GO       ?= go
BIN      := bin/csigscope
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
ENGINE   := aggregate/store/chdb/node_modules/.installed
CLIENT   := aggregate/store/chdb/testdata/nodeclient/node_modules/.installed
TYPES    := dashboards/testdata/types/node_modules/.installed
PANELS   := dashboards/grafana/testdata/panels/node_modules/.installed
PLUGIN   := dashboards/grafana/matrix/node_modules/.installed
SCREENS  := dashboards/grafana/testdata/screenshots/node_modules/.installed
CLIENTS  := aggregate/query/api/testdata/clients/node_modules/.installed
UPLOT    := dashboards/page/testdata/uplot/node_modules/.installed
TOOLS    := .cache/tools
LINT     := $(TOOLS)/golangci-lint
BENCHSTAT := $(TOOLS)/benchstat
PACKERS  := $(TOOLS)/nfpm $(TOOLS)/go-md2man
PROTOC_PLUGINS := $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-connect-go
DEMO_DIR ?= demo-data

.DEFAULT_GOAL := help
.PHONY: help build engine demo test test-all nightly torture bench bench-conform bench-tap bench-watch bench-peers bench-compare load accuracy check-clients digests generate lint fmt fuzz deps clean bench-page screenshots soak static dist

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/csigscope
	@[ -e $(BIN) ] || echo "compiling csigscope and its dependencies: the first time takes some minutes, later ones seconds"
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN) ./cmd/csigscope

# Stripped, since packages are for use. Every time in them is the commit's.
dist: engine $(PACKERS) ## make a tarball and a Debian package in dist, with checksums and a list of their parts
	@mkdir -p .cache/dist
	$(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o .cache/dist/csigscope ./cmd/csigscope
	.ci/dist dist .cache/dist/csigscope aggregate/store/chdb/node_modules/@chdb/lib-*/libchdb.* \
		"$$(git describe --tags --match 'v[0-9]*' --dirty=+dirty 2>/dev/null | sed 's/^v//' | grep . || TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=0.0.0+git%cd.$$(git rev-list --count HEAD).%h)" \
		"$$(git log -1 --format=%ct)"

engine: $(ENGINE) ## install the embedded ClickHouse engine

$(ENGINE): aggregate/store/chdb/package-lock.json
	@.ci/need npm npm
	@echo "fetching the embedded ClickHouse engine: 150 MB"
	cd aggregate/store/chdb && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(CLIENT) $(TYPES) $(PANELS) $(PLUGIN) $(SCREENS) $(UPLOT): %/node_modules/.installed: %/package-lock.json
	@.ci/need npm npm
	cd $(dir $<) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# This lock file lacks packages of other systems, which npm ci refuses.
$(CLIENTS): %/node_modules/.installed: %/package-lock.json
	@.ci/need npm npm
	cd $(dir $<) && npm install --no-save --no-audit --no-fund --loglevel=error
	@touch $@

demo: build engine ## simulate a training job, replay and store it, and show the heatmaps at http://127.0.0.1:8080/
	$(BIN) demo --dir $(DEMO_DIR)

deps: engine $(PACKERS) $(CLIENT) $(TYPES) $(PANELS) $(PLUGIN) $(UPLOT) ## install the programs that the tests need, as Debian and npm packages
	@.ci/need curl curl
	@.ci/need chromium chromium
	@.ci/need tshark tshark
	@.ci/need promtool prometheus
	@.ci/need openssl openssl
	@.ci/need systemd-analyze systemd
	@.ci/need ip iproute2
	@.ci/need tcpreplay tcpreplay

# make lint includes vet. -short skips tests that take long or drive processes; test-all has them.
test: engine ## run the tests that a change needs before it is pushed, about 4 minutes on 2 cores
	$(GO) test -count=1 -short -timeout 30m -vet=off ./...

# The race detector runs only in packages with several goroutines, and -short skips tests without
# any. The emitter has none, and simulating takes most of the time of tests that are instrumented:
# it is compiled without the detector.
test-all: build deps ## run all tests, and those of concurrent packages with the race detector, about 30 minutes on 2 cores
	@mkdir -p .cache && rm -f .cache/torture.txt
	CSIGSCOPE_TEST_TORTURE_LINE=$(CURDIR)/.cache/torture.txt $(GO) test -count=1 -timeout 60m -vet=off ./...
	@cat .cache/torture.txt
	$(GO) test -count=1 -timeout 60m -race -gcflags='github.com/csigscope/csigscope/replay/emitter/...=-race=false' -short -vet=off $$(.ci/concurrent)

check-clients: build engine $(CLIENTS) ## test the API with public clients: generators, validators, readers of tables
	.ci/check-clients

torture: engine ## kill live taps, and kill, cut, fill and starve the way to the store, 1000 times each (KILLS=N, SEED=N)
	CSIGSCOPE_TEST_KILLS=$(or $(KILLS),1000) $(GO) test -count=1 -timeout 60m -v -run '^TestKills$$' ./ingest/local/journal
	CSIGSCOPE_TEST_KILLS=100 $(GO) test -count=1 -timeout 60m -v -run '^Test(Scenarios|Reload|Killed)$$' ./ingest/local/bpf
	CSIGSCOPE_TEST_TORTURE_KILLS=$(or $(KILLS),1000) CSIGSCOPE_TEST_TORTURE_SEED=$(SEED) \
		$(GO) test -count=1 -timeout 60m -v -run '^TestTorture$$' ./aggregate/store

bench: ## measure the CPU time of a packet for 48 kinds of traffic (MATRIX=N packets each), and the pipeline on 10 million packets (PACKETS=N for fewer)
	CSIGSCOPE_TEST_MATRIX_PACKETS=$(or $(MATRIX),5000000) $(GO) test -count=1 -v -run '^Test(Matrix|Parts)$$' -timeout 120m ./replay
	@mkdir -p .cache/bench
	CSIGSCOPE_TEST_BENCH_PACKETS=$(or $(PACKETS),10000000) CSIGSCOPE_TEST_BENCH_DIR=$(CURDIR)/.cache/bench \
		$(GO) test -run '^$$' -bench Replay -benchtime 3x -timeout 60m ./replay
	$(GO) test -run '^$$' -bench . -benchmem ./capture ./decode/... ./aggregate ./aggregate/store ./replay/emitter/...

bench-conform: ## judge a switch by a million packet pairs on one core (PAIRS=N for fewer)
	CSIGSCOPE_TEST_CONFORM_PAIRS=$(or $(PAIRS),1000000) $(GO) test -count=1 -v -run '^TestConformSpeed$$' ./cmd/csigscope

bench-tap: ## receive, decode and aggregate packets of tcpreplay for 30 s, on one core (DURATION=10s for less), and compare a ring with counting in the kernel
	CSIGSCOPE_TEST_TAP_LOAD=$(or $(DURATION),30s) $(GO) test -count=1 -v -run TestTapLoad ./capture
	CSIGSCOPE_TEST_TAP_LOAD=1s $(GO) test -count=1 -v -run '^TestLoad$$' ./ingest/local/bpf

bench-watch: ## measure the latency of the API: events to 100 watchers, snapshots of 4096 cells, the last of 500 producers, provisional and final windows
	$(GO) test -run '^$$' -bench 'Watchers|SnapshotLatency|Freshness|Provisional|Changes' -benchtime 1x -count 5 ./aggregate/query/api

bench-peers: build ## compare the CPU time of a packet with flow exporters (PACKETS=N for fewer)
	.ci/bench-peers $(or $(PACKETS),10000000)

bench-compare: ## compare the CPU time of a packet with another commit (BASE=REF, RUNS=N)
	.ci/bench-compare $(or $(BASE),HEAD) $(or $(RUNS),10)

load: engine ## run 500 exporters for 10 minutes (LOAD=1m for less), kill them and the collector (SEED=N), and send 10 million random keys and 180 million random addresses (ADDRESSES=N)
	CSIGSCOPE_TEST_INGEST_LOAD=$(or $(LOAD),10m) CSIGSCOPE_TEST_INGEST_SEED=$(SEED) CSIGSCOPE_TEST_INGEST_KEYS=10000000 \
		$(GO) test -count=1 -v -timeout 60m -run '^(TestLoad|TestKills|TestRandomKeys)$$' ./ingest/remote
	CSIGSCOPE_TEST_ADDRESSES=$(or $(ADDRESSES),180000000) $(GO) test -count=1 -v -timeout 60m -run '^TestRandomAddresses$$' ./cmd/csigscope

accuracy: ## print how often replay names the true port, which faults report and conform find, and which periods are found
	@mkdir -p .cache
	CSIGSCOPE_TEST_ACCURACY=$(CURDIR)/.cache/accuracy.txt $(GO) test -count=1 -timeout 60m -run '^Test(Path)?Accuracy$$' ./cmd/csigscope
	CSIGSCOPE_TEST_FAULTS=$(CURDIR)/.cache/faults.txt CSIGSCOPE_TEST_SEEDS=$(or $(SEEDS),1) $(GO) test -count=1 -timeout 180m -run '^TestFault(s|Free)$$' ./replay
	@rm -f .cache/traced.txt
	CSIGSCOPE_TEST_TRACED=$(CURDIR)/.cache/traced.txt $(GO) test -count=1 -timeout 60m -run '^(TestClockBounds|TestClockGoals|TestTraceAttribution)$$' ./replay
	@rm -f .cache/rhythms.txt
	CSIGSCOPE_TEST_RHYTHMS=$(CURDIR)/.cache/rhythms.txt $(GO) test -count=1 -timeout 60m -run '^Test(NoJobPeriods|FastPeriod|NoPeriodInLongCaptures|ProbesHaveNoPeriod|Bursts)$$' ./cmd/csigscope ./dashboards/report
	@cat .cache/accuracy.txt .cache/accuracy.txt.paths .cache/faults.txt .cache/traced.txt .cache/rhythms.txt

digests: engine ## compare the results of all scenarios with the golden digests (SCENARIO=NAME for one, TEXTS=FOLDER keeps the rows, UPDATE=1 writes the digests again)
	$(GO) test -count=1 -timeout 60m -run '^TestDigests$$/^scenario$$/^$(or $(SCENARIO),.*)$$' ./cmd/csigscope \
		-args -every $(if $(UPDATE),-update) $(if $(TEXTS),-texts $(abspath $(TEXTS)))

nightly: build deps ## run the long tests, for hours: race everywhere, 1000 kills, load, soak, digests, accuracy, long fuzzing
	CSIGSCOPE_TEST_PAIRS=1 $(GO) test -count=1 -timeout 180m -race -vet=off ./...
	$(MAKE) torture load soak digests
	$(MAKE) accuracy SEEDS=10
	CSIGSCOPE_TEST_INGEST_OUTAGE=30m $(GO) test -count=1 -timeout 60m -v -run '^TestStoreAway$$' ./ingest/remote
	$(MAKE) fuzz FUZZTIME=10m

soak: build deps ## run a collector and an exporter under traffic and faults (SOAK=60m)
	unshare --user --map-root-user --net env CSIGSCOPE_TEST_NAMESPACE=1 CSIGSCOPE_TEST_SOAK=$(or $(SOAK),60m) \
		$(GO) test -count=1 -timeout 0 -v -run '^TestSoak$$' ./cmd/csigscope

static: ## build csigscope as its image does, and check that it runs without a libc
	CSIGSCOPE_TEST_STATIC=1 $(GO) test -count=1 -v -run '^TestStatic' ./dashboards/deploy

generate: build engine $(PLUGIN) $(PROTOC_PLUGINS) ## write the generated files again
	@.ci/need protoc protobuf-compiler
	@.ci/need /usr/include/google/protobuf/timestamp.proto libprotobuf-dev
	@.ci/need clang-14 clang-14
	@.ci/need llvm-strip-14 llvm-14
	$(GO) generate ./...

$(LINT) $(BENCHSTAT) $(PACKERS) $(PROTOC_PLUGINS): .ci/tools/go.sum
	mkdir -p $(TOOLS)
	cd .ci/tools && $(GO) build -o ../../$@ $$($(GO) list tool | grep -E '/$(notdir $@)(/v[0-9]+)?$$')

lint: $(LINT) ## check style and import rules
	$(LINT) run ./...

fmt: $(LINT) ## format all Go files
	$(LINT) fmt ./...

bench-page: ## scrub through 600 windows of 256 x 256 cells in Chromium, and watch some live
	@.ci/need chromium chromium
	CSIGSCOPE_TEST_PAGE_WINDOWS=600 $(GO) test -count=1 -v -timeout 10m -run '^Test(Scrub|LiveLarge)$$' ./dashboards/page

screenshots: engine $(PANELS) $(SCREENS) ## take the pictures of the page and of Grafana's dashboards again
	@.ci/need chromium chromium
	@.ci/need prometheus prometheus
	@.ci/need ip iproute2
	@mkdir -p dashboards/page/screenshots dashboards/grafana/screenshots
	CSIGSCOPE_TEST_README_SCREENSHOTS=$(CURDIR)/dashboards/page/screenshots $(GO) test -count=1 -v -run '^TestScreenshots$$' ./cmd/csigscope
	CSIGSCOPE_TEST_GRAFANA_SCREENSHOTS=$(CURDIR)/dashboards/grafana/screenshots $(GO) test -count=1 -v -run '^Test(Dashboard|Pipeline)Screenshots$$' ./cmd/csigscope

fuzz: ## fuzz every parser for a while (FUZZTIME=1m each, SKIP=REGEXP, SLOW=TIME of slow ones)
	.ci/fuzz $(or $(FUZZTIME),1m) "$(SKIP)" $(SLOW)

clean: ## remove build results
	rm -rf bin dist .cache
