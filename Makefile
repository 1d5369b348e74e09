# curfew. `make` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN      := bin/curfew
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT   := $(shell git rev-parse HEAD 2>/dev/null)
DATE     := $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
TOOL     := go tool -modfile=tools/go.mod
# The binary, vet, the tests and the linter compile with the same flags, or each dependency is
# compiled again for each of them.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)
# What make release builds for.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
# Many tests wait for most of their time, for processes, leases and clocks: more of them than
# there are processors run at once.
WAITING := -p $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN)) -parallel $(shell expr 4 '*' $$(getconf _NPROCESSORS_ONLN))
# Tests of the largest package, in processes of their own: they set the environment, which a
# process has one of.
APART := -apart 'internal/cli=TestScripts$$|TestDemoDay|TestConnect|TestTheSame' -apart 'internal/cli=TestFix|TestAFix|TestAReview|TestAPreview|TestShipped|TestNoLine|TestHostile'
# Seconds for all fuzz targets together.
FUZZBUDGET ?= 120
BENCHROWS ?= 10000000
# Bytes of the folder that checkpoints are measured with.
BENCHBYTES ?= 10737418240
# Machines that the service is measured with.
BENCHMACHINES ?= 20000
# The Python of the model server of bench-gateway.
GATEWAYENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/curfew/gatewaybench
# How long the service is watched for growth by make test-slow, such as 1h; empty is not at all.
CURFEW_SOAK ?=
export CURFEW_SOAK
# The packages that mutate changes, each with those whose tests hold its rules as well, and
# how many mutants of each.
MUTATE := action budget gate approval ledger bill duty,round policy store change round,backtest
comma := ,
MUTANTS ?= 20
# How often a training is killed.
KILLS ?= 10
# How many schedules of the storm.
SCHEDULES ?= 2000
# How often each property is drawn; some need a hundred to see everything once.
CASES ?= 10000
# What mutants, kills, schedules and properties are drawn by; without one, mutants and kills
# take 1, and the storm and properties a random one that they print. `make test` takes 9: the
# same tree has the same result.
SEED ?=

.PHONY: help demo demo-serve build test test-times test-slow bench-against terraform terraform-schema check lint fuzz fuzz-long storm properties vuln mutate bench bench-gateway gateway-answers gatewayenv fmt screenshots pictures golden components reference aws-sandbox clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## audit the simulated account and write its report to demo.html
	@./$(BIN) scan --demo
	@./$(BIN) scan --demo --no-save --quiet -o html > demo.html
	@echo "report: demo.html"

demo-serve: build ## serve the simulated account until interrupted, a day in two minutes
	./$(BIN) serve --demo

build: ## build bin/curfew
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/curfew

.PHONY: release
release: modules ## static binaries for Linux and macOS, bills of materials, completions and manual pages, with their checksums, into dist/
	rm -rf dist
	for platform in $(PLATFORMS); do \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -ldflags '$(LDFLAGS)' \
			-o dist/curfew_$(VERSION)_$${platform%/*}_$${platform#*/} ./cmd/curfew; \
	done
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) go run ./test/release -version $(VERSION) dist

test: build ## run every test, against a real AWS API on loopback as well
	./test/requirements.sh
	go vet ./...
	RAPID_SEED=$(or $(SEED),9) STORM_SEED=$(or $(SEED),9) go run ./test/gotest -record bin/test.json -skips test/skips.txt -also ./test/python.sh $(APART) -- $(WAITING) -vet=off -timeout 20m ./...

test-times: ## what cost most in the last `make test`: packages and tests
	@[ -e bin/test.json ] || { echo "there is no record of a run: make test" >&2; exit 1; }
	@go run ./test/gotest -times -record bin/test.json

test-slow: build ## long tests: all suites of test/slow.sh, or those of SUITE. A soak lasts CURFEW_SOAK, calls of the API are drawn by SEED, trainings in JAX are killed KILLS times
	./test/requirements.sh
	KILLS=$(KILLS) SEED=$(or $(SEED),1) ./test/slow.sh $(SUITE)

terraform: ## terraform/ with a real Terraform and a stand-in for AWS's provider: validated, tested, applied, its permissions asked
	CURFEW_SLOW=1 go test -count=1 -timeout 60m ./test/terraform
	cd test/terraform/provider && go vet ./... && go mod tidy -diff

terraform-schema: ## the schema of the stand-in for AWS's Terraform provider, and the attributes that estimates know, from npm packages (98 MB)
	d=$$(mktemp -d); trap 'rm -rf "$$d"' EXIT; for p in aws@21.22.1 google@16.12.1 azurerm@14.23.1; do mkdir "$$d/$${p%@*}"; \
	(cd "$$d/$${p%@*}" && npm pack --silent "@cdktf/provider-$$p" && tar xzf *.tgz); done; \
	go run ./test/terraform/schema "$$d/aws/package" "$$d/google/package" "$$d/azurerm/package"

check: test lint fuzz vuln ## what CI runs: test, lint, fuzz and known vulnerabilities

lint: ## formatting, import order, words, tidy modules, generated components, unreachable code
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	@for f in $$(git ls-files '*.templ'); do $(TOOL) templ generate -f $$f -stdout | diff -u "$${f%.templ}_templ.go" - || { echo "$$f: run make components"; exit 1; }; done
	$(TOOL) golangci-lint run
	go run ./test/words
	go run ./test/vocabulary -check
	@dead=$$($(TOOL) deadcode -test ./...); [ -z "$$dead" ] || { echo "$$dead"; exit 1; }

fuzz: ## every fuzz target, FUZZBUDGET seconds in all
	./test/fuzz.sh $(FUZZBUDGET)

fuzz-long: ## every fuzz target, an hour in all
	./test/fuzz.sh 3600

storm: ## SCHEDULES random schedules of faults, wrong clocks and kills, from SEED
	STORM_SCHEDULES=$(SCHEDULES) STORM_SEED=$(SEED) go test ./test/storm -run '^TestStorm$$' -v -count=1 -timeout 0

properties: ## every property test, CASES draws each, from SEED
	./test/properties.sh $(CASES) $(SEED)

.PHONY: modules
modules: ## sources of modules against go.sum
	go mod verify

vuln: modules ## known vulnerabilities, where their database can be reached
	./test/vuln.sh

mutate: ## changes in MUTATE's packages that no test notices; MUTANTS of each, by SEED
	go run ./test/mutate -n $(MUTANTS) -seed $(or $(SEED),1) $(foreach p,$(MUTATE),./internal/$(subst $(comma),$(comma)./internal/,$(p)))

bench: build ## speed, memory and calls at realistic sizes; bills compared with DuckDB, checkpoints with restic, `aws s3 sync` and rclone; the service over BENCHMACHINES
	go test -run '^$$' -bench . -benchmem ./...
	go run ./test/replaybench -rows $(BENCHROWS) ./bin/curfew
	go run ./test/replaybench -rows $(BENCHROWS) -signals=false ./bin/curfew
	cd test/duckdb && CGO_ENABLED=1 go run . -rows $(BENCHROWS)
	go run ./test/checkpointbench -size $(BENCHBYTES) ./bin/curfew
	./test/requirements.sh
	go run ./test/servicebench -machines $(BENCHMACHINES) ./bin/curfew
	go run ./test/servicebench -machines $(BENCHMACHINES) -replicas 2 -postgres ./bin/curfew
	go run ./test/servicebench -accounts 1 -machines 100 -for 10m ./bin/curfew
	go run ./test/servicebench -accounts 1 -machines 1000 -for 10m ./bin/curfew
	go run ./test/servicebench -accounts 1 -machines 100 -for 40m -limit 50 ./bin/curfew
	go run ./test/sessionbench -strict ./bin/curfew

bench-gateway: build gatewayenv ## the gateway against KServe's batcher and a reverse proxy, before onnxruntime on one core
	taskset -c 1 go run ./test/gatewaybench -python $(GATEWAYENV)/bin/python ./bin/curfew

gateway-answers: build gatewayenv ## 10,000 random rows through batches of the gateway, REST and gRPC by ghz: equal to direct answers
	go run ./test/gatewaybench -equal -python $(GATEWAYENV)/bin/python ./bin/curfew

gatewayenv:
	./test/requirements.sh
	[ -x $(GATEWAYENV)/bin/python ] || python3 -m venv $(GATEWAYENV)
	$(GATEWAYENV)/bin/pip install -q onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6

bench-against: ## how this tree compares with revision REV: rules, policies, replay, bills, audit, start; above 1.2 it fails
	go run ./test/benchagainst $(REV)

fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

screenshots: build ## every report in a real browser: pictures, prints, checks
	./test/screenshots/run.sh

pictures: build ## the pictures of README.md and docs, from what the commands and pages show
	cd test/screenshots && npm ci --silent --no-audit --no-fund
	@mkdir -p screenshots
	go test -count=1 ./test/docs -run '^(TestFirstGatedPullRequest|TestAuditPicture)$$' -pictures $(CURDIR)/screenshots
	node test/screenshots/pictures.mjs screenshots docs/images
	node test/screenshots/pagepictures.mjs docs/images

golden: ## write the golden files again
	go test ./internal/report ./internal/estimate ./internal/notify/mail ./internal/notify/slack ./internal/notify/webhook -update
	go test ./internal/cli -run '^TestGolden|^TestReadme' -update

components: ## write the components of pages and mail from their .templ files
	$(TOOL) templ generate -log-level error

reference: ## write docs/reference, schemas, the roles in deploy/, and roles and prices in terraform/ from the code
	go run ./test/reference
	go run ./test/deploy

aws-sandbox: ## a seeded AWS API on loopback to try curfew on
	@go run ./test/aws-sandbox -live

clean: ## remove what was built
	rm -rf bin dist demo.html screenshots
