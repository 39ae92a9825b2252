# The comment after a target describes it; "make" without a target prints all descriptions.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

BIN     := bin/sojourn
VERSION := $(shell cat VERSION)
LDFLAGS := -s -w -X github.com/sojourn-run/sojourn/internal/release.Stamp=$(VERSION)
# All builds, tests and measurements use the v2 implementation of encoding/json, which saves a seventh of the processor
# time of a socket. No package imports encoding/json/v2, so a plain "go build" or "go test" works too.
export GOEXPERIMENT := jsonv2
# Builds, vet and tests use the same compiler settings: each other combination would compile everything again.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null)) -trimpath)
GOBUILD := go build -ldflags "$(LDFLAGS)"
TOOLS   := bin/tools
# Directories with npm packages, found by their lock files: the dashboard and the peers of interoperability tests.
NPM     := $(patsubst %/package-lock.json,%,$(shell find * \( -name node_modules -o -path tools \) -prune -o -name package-lock.json -print))
WEB     := $(shell find web -name node_modules -prune -o -name dist -prune -o -type f ! -name '*.go' ! -name '*.md' -print 2>/dev/null)
SOURCES := find * -name node_modules -prune -o -name '*.go' -print
PACKAGE ?= ./...
SCENARIOS ?= P1 P2 P4 P5 P6
RUNS    ?= 5
COMPARE ?=
TEMPORAL := github.com/temporalio/cli/cmd/temporal@v1.5.1
MUTANTS ?= all
FUZZ_EXAMPLES ?= 10
FREEZES ?= 20
SOAK    ?= 10m
STORM   ?= 1000
CYCLES  ?= 1000
CUTS    ?= 400
MEMORY_ROUNDS ?= 1
ROLLING ?= 10m
CHAOS   ?= 6m
SEED    ?=

.PHONY: help run dev test check race postgres interop e2e fuzz fuzz-api mutants crash powercut freeze memory backlog soak storm rolling chaos sandbox-long upgrade image release binary lint dead fmt generate verify web bench compare build tools clean
.DELETE_ON_ERROR:

help: ## print this list
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build everything, start app and worker on SQLite, start sample runs
	$(BIN) dev

dev: ## the same without building the dashboard (for work on the Go side)
	$(GOBUILD) -o $(BIN) ./cmd/sojourn
	$(BIN) dev

build: web ## build the dashboard and the binary; fails if the binary has more than 50 MB
	@$(MAKE) --no-print-directory binary

# The dashboard is built already.
binary:
	$(GOBUILD) -o $(BIN) ./cmd/sojourn
	@du --apparent-size --block-size=1 $(BIN) | awk '{ printf "$(BIN) %.1f MB\n", $$1 / 1e6; if ($$1 > 50e6) { \
		print "error: $(BIN) has more than 50 MB; see \"go version -m\" for the linked modules"; exit 1 } }'

test: deps build npm ## run all tests: Go on SQLite and PostgreSQL, dashboard units, dashboard in Chromium
	.ci/postgres .ci/test

check: ## check a change in half a minute: format, vet, root tests, short tests of changed packages and direct importers
	@.ci/check

race: deps ## run the Go tests under the race detector (PACKAGE=./app/... for a part)
	.ci/deps compiler
	.ci/postgres env CGO_ENABLED=1 go test -race -count=1 -timeout 60m $(PACKAGE)

postgres: ## run the tests of the stores and the app on a private PostgreSQL
	.ci/deps postgres
	.ci/postgres env SOJOURN_TEST_REQUIRE=postgres go test -count=1 -timeout 60m ./app/...

interop: ## run the published Python and Rust SDKs and the Rust example against the app (compiles for minutes, once), on SQLite and PostgreSQL
	@command -v cargo >/dev/null || { echo "please install Rust 1.86 or newer"; exit 1; }
	.ci/deps postgres python
	.ci/postgres env SOJOURN_TEST_REQUIRE=postgres,python,rust go test -count=1 -timeout 60m -run 'Rust|Python' ./app/apptest ./examples

e2e: build npm ## run the dashboard's tests in Chromium
	.ci/deps chromium
	SOJOURN_TEST_CHROMIUM=$${SOJOURN_TEST_CHROMIUM:-$$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome)} npm --prefix web run e2e

fuzz: ## run every fuzz test for FUZZTIME (20s each)
	.ci/fuzz

fuzz-api: deps ## send requests generated from the API description to a running app, in every role, FUZZ_EXAMPLES (10) of each operation
	SOJOURN_TEST_FUZZ=$(FUZZ_EXAMPLES) go test -count=1 -timeout 60m -v -run RequestsMadeOfTheDescription ./app/apptest

mutants: deps ## check that the tests detect each mutation of .ci/mutants, applied to a copy of the tree (MUTANTS=NAME,NAME for some)
	.ci/postgres env SOJOURN_TEST_REQUIRE=postgres SOJOURN_TEST_MUTANTS=$(MUTANTS) go test -count=1 -timeout 60m -v -run TestMutantsDie .

crash: ## kill processes at 100 random points under load; kill and freeze the workers of 200 sessions; kill workers of the Python SDK
	.ci/deps postgres python
	SOJOURN_TEST_CRASHES=100 SOJOURN_TEST_REQUIRE=postgres,python .ci/postgres go test -count=1 -timeout 120m -v -run 'Crash|Kill' ./...

powercut: ## simulate CUTS (400) power failures from the recorded writes and syncs of an app: SQLite opens, nothing acknowledged is lost
	.ci/deps strace
	SOJOURN_TEST_POWERCUTS=$(CUTS) SOJOURN_TEST_REQUIRE=strace go test -count=1 -timeout 60m -v -run SurvivesAPowerCut ./internal/cli

freeze: ## freeze a worker FREEZES (20) times for longer than its leases: it starts no expired task; freeze an app: no other app waits
	.ci/deps postgres
	SOJOURN_TEST_FREEZES=$(FREEZES) .ci/postgres go test -count=1 -timeout 120m -v -run ResumedWorkerStartsNoTask ./internal/cli
	SOJOURN_TEST_FREEZES=$(FREEZES) SOJOURN_TEST_REQUIRE=postgres .ci/postgres go test -count=1 -timeout 60m -v -run FrozenAppDoesNotBlockOthers ./app/store/postgres

memory: ## send the largest bodies to every route of an app of 256 MiB, with each role and without a token; large work in 1 GiB (MEMORY_ROUNDS=1)
	SOJOURN_TEST_MEMORY_ROUNDS=$(MEMORY_ROUNDS) go test -count=1 -timeout 60m -v -run AnAppOf ./internal/cli

backlog: deps ## process backlogs of 18 MB and 93 MB over each transport, with two workers, on each database
	SOJOURN_TEST_BACKLOG=1 SOJOURN_TEST_REQUIRE=postgres .ci/postgres go test -count=1 -timeout 60m -v -run BacklogOfLargePayloads ./worker

soak: ## start, stop and disconnect 500 workers for SOAK (10m) on each database: memory, goroutines and tables must not grow
	.ci/deps postgres
	SOJOURN_TEST_SOAK=$(SOAK) SOJOURN_TEST_REQUIRE=postgres .ci/postgres go test -count=1 -timeout 120m -v -run FleetThatChurns ./internal/cli

storm: ## drop the sockets of STORM (1000) busy workers twice, on each database: all reconnect, nothing is lost
	.ci/deps postgres
	SOJOURN_TEST_STORM=$(STORM) SOJOURN_TEST_REQUIRE=postgres .ci/postgres go test -count=1 -timeout 60m -v -run DroppedSocketsReconnect ./internal/cli

rolling: ## replace one build by another under load for ROLLING (10m), process by process, on PostgreSQL with a schema change
	.ci/deps postgres
	SOJOURN_TEST_ROLLING=$(ROLLING) SOJOURN_TEST_REQUIRE=postgres .ci/postgres go test -count=1 -timeout 60m -v -run ARollingUpgradeUnderLoad ./internal/cli

chaos: ## kill, freeze, disconnect and deploy two apps and workers in Go, JavaScript and Python for CHAOS (6m); SEED repeats a run
	.ci/deps postgres python
	SOJOURN_TEST_CHAOS=$(CHAOS) SOJOURN_TEST_CHAOS_SEED=$(SEED) SOJOURN_TEST_REQUIRE=postgres,python .ci/postgres go test -count=1 -timeout 30m -v -run SessionsUnderChaos ./internal/cli

sandbox-long: deps ## create and end CYCLES (1000) executors of each runtime in every way: no process, descriptor, file or memory remains
	SOJOURN_TEST_CYCLES=$(CYCLES) go test -count=1 -timeout 60m -v -run CreatingAndKillingLeavesNothing ./sandbox

upgrade: build ## continue open work of an older commit's binary with this one (FROM=COMMIT)
	.ci/deps postgres
	.ci/upgrade $(FROM)

image: web ## build the root file system of the image twice without a container engine, compare and run it; write bin/sojourn-image.tar.gz (as root)
	.ci/deps image
	SOJOURN_TEST_REQUIRE=image go test -count=1 -timeout 30m -v ./deploy/image
	@mkdir -p bin
	go run ./deploy/image bin/sojourn-image.tar.gz

release: ## build binaries, image, SBOM and checksums into dist/VERSION after all checks (VERSION=1.2.3; CHECKED=1 skips the tests)
	.ci/release $(VERSION)

lint: tools dead ## golangci-lint with gofumpt, unused functions, known vulnerabilities
	$(TOOLS)/golangci-lint run ./...
	.ci/vulnerable

dead: $(TOOLS)/deadcode ## find functions that neither the product nor a test calls
	@dead=$$($(TOOLS)/deadcode -test ./...) || exit 1; dead=$$(grep -v ' Example' <<<"$$dead" || true); \
	  [ -z "$$dead" ] || { echo "nothing reaches:"; echo "$$dead"; exit 1; }

fmt: ## format the Go sources
	$(SOURCES) | xargs gofmt -s -w

generate: web/node_modules/.installed ## regenerate the generated files
	go generate ./...
	npm --prefix web run --silent types

verify: web/node_modules/.installed ## quick checks: format, vet, generated files, direction of imports
	@unformatted=$$($(SOURCES) | xargs gofmt -l); \
	  [ -z "$$unformatted" ] || { echo "not formatted:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	GOOS=darwin go vet ./sandbox/... ./worker/... # what has parts of its own there
	@for module in $$(git ls-files '*/go.mod' | grep -v '^tools/go.mod$$\|/testdata/' | xargs -n 1 dirname); do \
	  echo "go vet $$module"; (cd $$module && go vet -mod=readonly ./...) || exit 1; done
	go -C tools mod verify
	.ci/generated
	go test -count=1 .

web: web/dist/index.html ## build the dashboard, if it changed

bench: build ## measure: P1 P2 P4 P5 P6 on SQLite and PostgreSQL (SCENARIOS="P5" RUNS=5)
	.ci/deps postgres
	SOJOURN_TEST_DURABLE=1 .ci/postgres $(BIN) bench $(SCENARIOS) --store sqlite,postgres --runs $(RUNS)

compare: ## measure the same workloads on Sojourn, River, DBOS, Restate and Temporal, alternating (COMPARE="-n 500 -at-once 64 -runs 3 -only NAMES")
	.ci/deps postgres
	@command -v npm >/dev/null || { echo "please install Node 20 or newer"; exit 1; }
	npm --prefix tools/compare ci --no-audit --no-fund
	@[ -x $(TOOLS)/temporal ] || GOBIN=$(CURDIR)/$(TOOLS) go install $(TEMPORAL) || echo "$(TEMPORAL) cannot be built here: its column is left out"
	go -C tools/compare test ./...
	go -C tools/compare build -o ../../bin/compare .
	cd tools/compare && PATH="$(CURDIR)/$(TOOLS):$$PATH" SOJOURN_TEST_DURABLE=1 ../../.ci/postgres ../../bin/compare $(COMPARE)

tools: $(TOOLS)/.stamp

clean: ## remove build output
	rm -rf bin
	find web/dist -mindepth 1 ! -name .gitkeep -delete

.PHONY: deps npm
deps:
	@.ci/deps

INSTALLED := $(addsuffix /node_modules/.installed,$(NPM))
npm: $(INSTALLED)
$(INSTALLED): %/node_modules/.installed: %/package-lock.json
	@command -v npm >/dev/null || { echo "please install Node 20 or newer"; exit 1; }
	npm --prefix $* ci --no-audit --no-fund
	@mkdir -p $(@D) && touch $@

web/dist/index.html: $(WEB) web/node_modules/.installed
	npm --prefix web run build
	@touch $@

# A separate target, because every CI run needs it and the other tools take minutes to build.
$(TOOLS)/deadcode: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	go -C tools build -o ../$(TOOLS)/ golang.org/x/tools/cmd/deadcode

$(TOOLS)/.stamp: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	go -C tools build -o ../$(TOOLS)/ tool
	@touch $@
