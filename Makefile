# Targets with a ## comment are shown by `make help`.
SHELL := /bin/bash
GO    ?= go
OUT   ?= runs
BIN   := bin/overbook

.DEFAULT_GOAL := help
.PHONY: help build setup race test lint demo doctor bench bench-wire suite20 on-sale crash-points mutants test-docker amplify clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

build: ## build bin/overbook
	@$(GO) build -o $(BIN) .

setup: build ## get what is missing on this machine (WireMock jar, PostgreSQL, Redis, Java)
	@$(BIN) doctor --fix --quiet

race: setup ## the race suite, judged, then the write-amplification table
	@$(BIN) run --out $(OUT)
	@$(BIN) amplify --out $(OUT)

test: setup ## all tests
	@$(GO) vet ./...
	@$(GO) test -count=1 -timeout 20m ./...

demo: setup ## one red and one green run in a minute
	@$(BIN) demo --out $(OUT)

doctor: build ## what this machine has, what is missing, and how to get it
	@$(BIN) doctor

amplify: setup ## the table again with 50 rounds; README and reports/published/ with it
	@$(BIN) amplify --rounds 50 --out $(OUT) --markdown reports/published/amplify.md
	@scripts/readme-table.sh

bench: setup ## spread of a burst against the floor, beside other clients (measure alone)
	@$(GO) test ./harness/wire/http -run '^TestBurstSpread$$' -count=1 -v -timeout 20m -spread.rounds=60 -spread.publish=$(CURDIR)/reports/published

bench-wire: setup ## what the Postgres wire costs: throughput through it against without it (measure alone)
	@$(GO) test ./harness/wire/postgres -run '^$$' -bench PassThrough -benchtime 20000x -count 5 | scripts/wire-table.sh reports/published/postgres-wire.md

suite20: setup ## the race suite twenty times: no FAIL, no UNKNOWN
	@$(BIN) run --repeat 20 --out $(OUT)

on-sale: setup ## ten thousand people for eighty seats, judged (two minutes; not in the suite)
	@$(BIN) run tickets/on-sale --out $(OUT) -v

crash-points: setup ## a fault at each moment of each request, kills and dropped connections (the suite takes fewer of the calendar's)
	@$(BIN) run 'telescope/crash-points*' --out $(OUT)
	@$(BIN) run 'tickets/crash-points*' --set faults=both --out $(OUT)
	@$(BIN) run 'calendar/crash-points*' --set faults=both --set kills=each --out $(OUT)

mutants: setup ## plant each bug and see that its scenario turns red
	@$(GO) test -count=1 -tags mutants -run TestMutants -timeout 120m -v ./scenarios

test-docker: build ## the same parts from Docker images (a clear skip where there is no daemon)
	@OVERBOOK_TEST_DOCKER=1 $(GO) test -count=1 -run Docker -v ./harness/provision

lint: ## golangci-lint, built once into bin/
	@test -x bin/golangci-lint || GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@bin/golangci-lint run ./...

clean: ## remove what was built and the stored runs
	@rm -rf bin runs
