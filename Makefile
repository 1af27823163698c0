# Needs Go, git and make; nothing else. Tools come through the Go module proxy,
# pinned here. `make race` also needs a C compiler.

GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
KEEP        ?=
FUZZ_TIME   ?= 20s

# Go stamps the commit into a binary and fails where git does not let it look:
# in a tree of another user, or one without a commit.
ifneq ($(shell git rev-parse HEAD >/dev/null 2>&1; echo $$?),0)
export GOFLAGS := $(shell go env GOFLAGS) -buildvcs=false
endif

.PHONY: all help build demo test test-packages test-with-loops test-without-loops test-e2e again check race vm-test bench benchcmp explore fuzz clean

all: check test

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

build: ## bin/usher and the example apps
	go build -o bin/usher ./cmd/usher
	sh examples/hello/build.sh

demo: build ## wakes, swaps and puts to sleep an app before your eyes; KEEP=1 leaves it running
	go run ./examples/demo $(if $(KEEP),--keep)

test: test-packages test-e2e ## everything that needs nothing but Go; a skipped test says why, one that counts says what

# The tests of the engine wait more than they compute and take longest, so they begin
# first, and beside them those of its goroutines alone.
LONGEST := ./edge/engine

test-packages:
	@$(MAKE) --no-print-directory -j2 test-with-loops test-without-loops

test-with-loops:
	go run ./cmd/internal/tests $(LONGEST) $$(go list ./... | grep -v -e /cmd/usher/e2e -e /edge/engine$$)

test-without-loops:
	USHER_TEST_LOOPS=0 go run ./cmd/internal/tests ./edge/engine

test-e2e: # alone: it times real processes
	go run ./cmd/internal/tests ./cmd/usher/e2e

again: ## the tests of PACKAGES once more, whatever they said before
	go test -count=1 $(PACKAGES)

check: ## format, vet, staticcheck, the rules of the tree, and every benchmark once
	@unformatted=$$(go run $(GOFUMPT) -l .) || exit 1; if [ -n "$$unformatted" ]; then \
		echo "not formatted as gofumpt does it:"; echo "$$unformatted"; \
		echo "run: go run $(GOFUMPT) -w ."; exit 1; fi
	go vet ./...
	@# What is built only under the race detector must compile too: this needs no C compiler.
	CGO_ENABLED=0 go vet -tags race ./...
	go run $(STATICCHECK) ./...
	go test ./cmd/internal/house
	go test -run '^$$' -bench . -benchtime 1x ./...

race: ## the tests under the race detector, but for the core: it has no goroutine
	go test -race $(LONGEST) $$(go list ./... | grep -v -e /activator/lifecycle -e /cmd/usher/e2e -e /edge/engine$$)

vm-test: ## the tests that need memory and pids controllers, in a virtual machine that has them
	@bash .ci/vm

bench: ## the benchmarks, for numbers
	go test -run '^$$' -bench . -benchmem ./...

benchcmp: ## the benchmarks of the hot path beside those of BASE (what main was before), in turns
	@bash .ci/benchcmp $(BASE)

explore: ## the lifecycle core with larger bounds, and every pair of crashes; takes minutes
	USHER_EXPLORE=full go test -count=1 -v -timeout 120m ./activator/lifecycle
	USHER_EXPLORE=full go test -count=1 -v -timeout 120m -run CrashAnywhere ./activator

fuzz: ## every fuzz target for FUZZ_TIME each
	@bash .ci/fuzz $(FUZZ_TIME)

clean: ## what build has made
	rm -rf bin examples/*/bin
