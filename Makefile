# make up     build everything, start a cluster with real containers, run the example
# make test   run all tests, including those with containers
# make down   stop the cluster and remove everything that it created
SHELL := /bin/bash
GO    ?= go
BIN   := bin
export CGO_ENABLED := 0
# The profile that the compiler optimizes by: "auto" is cmd/coracle/default.pgo.
# "off" compiles every package once for the binary and the tests.
PGO   ?= off
# One form of compilation for the binary, the bundle, the tests and the linter,
# so that they share what the build cache holds. Debug information is for
# debuggers only, and a tenth of the work of the compiler.
export GOFLAGS = -trimpath -buildvcs=false -pgo=$(PGO) -gcflags=all=-dwarf=false
ROOT  := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: up down build bundle test test-hard lint bench bench-network coredns profile soak generate check-generated test-clients test-vm clean

up: build bundle
	@$(ROOT) $(BIN)/coracle up
	@$(ROOT) examples/run.sh

down:
	@[ -x $(BIN)/coracle ] || $(MAKE) --no-print-directory build
	@$(ROOT) $(BIN)/coracle down --yes

build:
	@mkdir -p $(BIN)
	$(GO) build -ldflags '-s -w' -o $(BIN)/coracle ./cmd/coracle

bundle:
	@bundle/build.sh

test: build bundle packages
	@cd tools/gotestsum && $(GO) build -o ../../$(BIN)/gotestsum gotest.tools/gotestsum
	@tools/test.sh

# The suite again and again, under conditions that must not matter: docs/testing.md.
test-hard: build bundle packages
	@cd tools/gotestsum && $(GO) build -o ../../$(BIN)/gotestsum gotest.tools/gotestsum
	@$(ROOT) env PATH="$$PATH" tools/test-hard.sh

# Debian packages that the tests use in addition to those of the bundle.
.PHONY: packages
packages:
	@tools/packages.sh nftables iproute2 curl openssl

# Clients that others made, each in a module or package of its own: Go's
# controller-runtime, Helm, those of Python and JavaScript, and a program that
# uses the package cluster.
test-clients: build
	@tools/packages.sh python3-kubernetes $$(command -v npm >/dev/null || echo nodejs npm)
	@$(ROOT) env PATH="$$PATH" test/clients/run.sh $(BIN)/coracle

# The public conformance suite of the Gateway API, in a module of its own. It takes the
# ports 80 and 443 of the machine.
.PHONY: test-gateway
test-gateway: build bundle
	@$(ROOT) env PATH="$$PATH" test/gateway/run.sh $(BIN)/coracle

# A cluster in a virtual machine where control groups are version 2 alone,
# emulated in software: it takes minutes.
test-vm: build bundle
	@tools/packages.sh qemu-system-x86 busybox-static
	@$(ROOT) env PATH="$$PATH" test/vm/run.sh

lint:
	@out=$$(gofmt -l bundle cluster cmd examples internal test tools); if [ -n "$$out" ]; then echo "gofmt these:"; echo "$$out"; exit 1; fi
	cd tools/lint && $(GO) build -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	$(BIN)/golangci-lint run --allow-serial-runners ./...

# NODES are the numbers of nodes to schedule on, such as 1000,5000.
NODES ?= 1000
bench: PGO := auto
bench: build bundle packages bench-packages
	$(GO) run ./test/bench -nodes=$(NODES)

# The network alone: Services in the modes nftables and iptables, traffic through them and
# between nodes, DNS beside CoreDNS, and the proxy of Ingresses.
bench-network: PGO := auto
bench-network: build bundle packages bench-packages coredns
	$(GO) run ./test/bench -only=services,traffic,dns,ingress

# What the benchmarks of the network use in addition.
.PHONY: bench-packages
bench-packages:
	@tools/packages.sh iptables iperf3

# CoreDNS, a module of its own, for the benchmark of DNS. Without it, that measures this
# program alone. The module names CoreDNS only: go adds what that requires to a copy.
coredns:
	@mkdir -p $(BIN)
	@cp test/coredns/go.mod $(BIN)/coredns.mod
	$(GO) build -C test/coredns -mod=mod -modfile=$(CURDIR)/$(BIN)/coredns.mod -o $(CURDIR)/$(BIN)/coredns .

# The speed of scheduling alone: whole clusters with 1,000 and 5,000 nodes, and the
# time of a decision in memory. Pods that fit nowhere alone take over six minutes for
# each number of nodes.
.PHONY: bench-scheduler
bench-scheduler: NODES := 1000,5000
bench-scheduler: PGO := auto
bench-scheduler: build bundle packages
	$(GO) run ./test/bench -only=schedule,preempt,churn,unschedulable -nodes=$(NODES)
	$(GO) test ./internal/scheduler -run '^$$' -bench 'Decide'
	$(GO) test ./internal/scheduler/plugin/defaultpreemption -run '^$$' -bench 'Preempt'

# What the budgets of controllers say: whole clusters of simulated nodes, and what one
# change costs a controller beside 1,000 to 100,000 other objects.
.PHONY: bench-controllers
bench-controllers: PGO := auto
bench-controllers: build bundle packages
	$(GO) run ./test/bench -only=simulated,simulated-idle
	$(GO) test ./internal/controllers/all -run '^$$' -bench 'Scale' -timeout 0

# A new cmd/coracle/default.pgo, from the load of the benchmark.
profile: build bundle
	$(GO) run ./test/bench -only=api,schedule -pods=20000 -profile=$(PWD)/profile.pgo
	mv profile.pgo cmd/coracle/default.pgo

# For as long as SOAK says each: the history test with random seeds, and all
# attacks on one control plane, whose memory stays flat; then faults of a node
# under a churn of pods, 200 kills, and the attacks, with the latency of a machine
# that does nothing else as bound; connections to a Service while its pods roll and
# the proxy is killed, of which none may fail; 100,000 random events around a simulated
# scheduler; a thousand seeds of the simulation, and errors that it must find when
# they are put back; and the loads on memory at full size: 10,000 watches, 5,000
# pods, and 100,000 objects that 100 clients list at once.
SOAK ?= 10m
soak: build bundle packages
	$(GO) test ./test/history -run 'TestSoak$$' -v -count=1 -timeout 0 -history.soak=$(SOAK)
	$(GO) test ./test/attack -run 'TestSoak$$' -v -count=1 -timeout 0 -attack.soak=$(SOAK)
	$(GO) test ./test/attack -run 'TestNodeFaults$$' -v -count=1 -timeout 0 -attack.faults=$(SOAK)
	$(GO) test ./test/attack -run 'TestKillProcessesAtRandom$$' -v -count=1 -timeout 0 -attack.kills=200 -attack.recovery=2s
	$(GO) test ./test/attack -v -count=1 -timeout 0 -attack.latency=100ms -attack.recovery=2s
	$(GO) test ./test/attack -run 'TestConnectionsWhilePodsRoll$$' -v -count=1 -timeout 0 -attack.rolls=$(SOAK)
	$(GO) test ./internal/scheduler -run 'TestRandomEvents$$' -v -count=1 -timeout 0 -scheduler.events=100000
	$(GO) test ./test/sim -run 'TestSimulation$$' -count=1 -timeout 0 -sim.count=1000
	$(GO) run ./test/sim/mutants
	CORACLE_MEMORY_FULL=1 $(GO) test ./test/attack -v -count=1 -timeout 0 -parallel 1 \
		-run '^(TestThousandsOfWatches|TestThousandsOfPodsCreatedAndDeleted|TestHundredClientsListAllObjects|TestWatchersThatNeverRead)$$'

generate:
	@tools/generate.sh

check-generated:
	@tools/generate.sh --check

clean: down
	rm -rf $(BIN)
