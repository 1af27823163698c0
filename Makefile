# Needs Go, git and make; nothing else. Tools come through the Go module proxy.

GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
KEEP        ?=

.PHONY: all build demo test check race bench explore fuzz clean

all: check test

build: ## bin/usher and the example apps
	go build -o bin/usher ./cmd/usher
	sh examples/hello/build.sh

demo: build ## wakes, swaps and puts to sleep two apps in front of your eyes
	go run ./examples/demo $(if $(KEEP),--keep)

test: ## everything that needs nothing but Go; a skipped test says why
	go test ./...

check: ## formatting, vet, staticcheck, and every benchmark once
	@unformatted=$$(go run $(GOFUMPT) -l .); if [ -n "$$unformatted" ]; then \
		echo "not formatted as gofumpt does it:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	go test -run '^$$' -bench . -benchtime 1x ./...

race: ## the tests under the race detector
	go test -race ./...

explore: ## the lifecycle core with larger bounds; takes minutes
	USHER_EXPLORE=full go test -run Explore -v -timeout 60m ./activator/lifecycle

FUZZ_TIME ?= 20s
fuzz: ## every fuzz target for FUZZ_TIME
	@for pkg in $$(go list ./...); do \
		for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ_TIME) $$pkg || exit 1; \
		done; done

clean:
	rm -rf bin examples/*/bin
