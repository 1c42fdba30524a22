// Command bench measures a whole cluster with the real binary. For each budget
// it prints a row with the budget and the measured value. It starts clusters of
// its own and removes them.
//
//	start ─ idle ─ api (5,000 pods, 32 clients) ─ watch ─ schedule ─ preempt ─ churn ─ unschedulable ─► --nodes=0
//	start ─ idle ─ runtime ─ pods ─► --nodes=1
//	start ─ simulated ─► --nodes=0 --simulated-nodes=100
//	start ─ simulated-idle ─► --nodes=0 --simulated-nodes=1000
//	start ─ services ─ dns (up to 10,000 Services) ─► --nodes=0
//	start ─ traffic ─► --nodes=2
//	ingress, without a cluster
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	binary, bundle string
	coreDNS        string
	profile        string
	only           []string
	pods, clients  int
	nodes          []int
	simulated      int
	simulatedIdle  int
	idle           time.Duration
}

func main() {
	s := settings{}
	only := ""
	flag.StringVar(&s.binary, "binary", "bin/coracle", "binary to measure")
	flag.StringVar(&s.bundle, "bundle", "bin/bundle", "its container runtime")
	flag.StringVar(&s.coreDNS, "coredns", "bin/coredns", "CoreDNS to compare with; it is left out if there is none")
	flag.StringVar(&only, "only", "", "parts to measure, separated by commas: "+strings.Join(partNames(), ", "))
	flag.StringVar(&s.profile, "profile", "", "file to write a CPU profile of the control plane to")
	flag.IntVar(&s.pods, "pods", 5000, "pods in the API server's measurements")
	nodes := flag.String("nodes", "1000", "numbers of nodes to schedule on, separated by commas")
	flag.IntVar(&s.simulated, "simulated-nodes", 100, "simulated nodes, with a hundred pods each")
	flag.IntVar(&s.simulatedIdle, "simulated-idle-nodes", 1000, "simulated nodes without pods")
	flag.IntVar(&s.clients, "clients", 32, "requests at a time")
	flag.DurationVar(&s.idle, "idle", 20*time.Second, "how long to watch an idle cluster")
	flag.Parse()
	if only != "" {
		s.only = strings.Split(only, ",")
	}
	for text := range strings.SplitSeq(*nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			fmt.Fprintf(os.Stderr, "bench: -nodes=%s: want numbers greater than 0\n", *nodes)
			os.Exit(2)
		}
		s.nodes = append(s.nodes, n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// layout says which parts a cluster consists of.
type layout int

const (
	alone         layout = iota // the control plane
	withNode                    // and a node
	simulated                   // and simulated nodes
	manySimulated               // and more of them, without pods
	crowded                     // the control plane, which parts fill with Services
	twoNodes                    // and two nodes
	nothing                     // there is no cluster
)

// layouts returns the layouts in the order in which they are measured.
func layouts() []layout {
	return []layout{alone, withNode, simulated, manySimulated, crowded, twoNodes, nothing}
}

// part measures an aspect of a cluster.
type part struct {
	name    string
	on      layout
	measure func(ctx context.Context, s *settings, c *cluster, t *table) error
}

// parts returns the parts in the order in which they use a cluster.
func parts() []part {
	return []part{
		{"idle", alone, measureIdle},
		{"api", alone, measureAPI},
		{"watch", alone, measureWatch},
		{"schedule", alone, withNodes((*scheduling).measureScheduling)},
		{"preempt", alone, withNodes((*scheduling).measurePreemption)},
		{"churn", alone, withNodes((*scheduling).measureChurn)},
		{"unschedulable", alone, withNodes((*scheduling).measureUnschedulable)},
		{"idle", withNode, measureIdle},
		{"runtime", withNode, measureRuntime},
		{"pods", withNode, measurePods},
		{"simulated", simulated, measureSimulated},
		{"simulated-idle", manySimulated, measureSimulatedIdle},
		{"services", crowded, measureServices},
		{"dns", crowded, measureDNS},
		{"traffic", twoNodes, measureTraffic},
		{"ingress", nothing, measureIngress},
	}
}

func partNames() []string {
	var names []string
	for _, p := range parts() {
		if !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

func (s *settings) run(ctx context.Context) error {
	for _, name := range s.only {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("-only=%s: want any of %s", name, strings.Join(partNames(), ", "))
		}
	}
	for _, path := range []*string{&s.binary, &s.bundle} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		if _, err := os.Stat(absolute); err != nil {
			return fmt.Errorf("%w: run make build bundle first", err)
		}
		*path = absolute
	}
	t := newTable(os.Stdout)
	for _, l := range layouts() {
		if err := s.measureCluster(ctx, l, t); err != nil {
			return err
		}
	}
	return nil
}

// measureCluster runs the parts for one layout of a cluster, and removes the
// cluster in any case. Each part removes what it created, except Services, which
// those of a crowded cluster share.
func (s *settings) measureCluster(ctx context.Context, l layout, t *table) (err error) {
	var wanted []part
	for _, p := range parts() {
		if p.on == l && (len(s.only) == 0 || slices.Contains(s.only, p.name)) {
			wanted = append(wanted, p)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var c *cluster
	measure := func() error {
		for _, p := range wanted {
			if err := p.measure(ctx, s, c, t); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	}
	if l == nothing {
		return measure()
	}
	if c, err = start(ctx, s, l); err != nil {
		return err
	}
	defer func() {
		if downErr := c.down(); err == nil {
			err = downErr
		}
	}()
	switch l {
	case alone:
		t.add("start to /readyz", "0.4 s", "%.2f s", c.readyAfter.Seconds())
	case withNode:
		t.add("start to node Ready", "1.5 s", "%.2f s", c.readyAfter.Seconds())
	}
	if s.profile != "" && (l == alone || l == simulated) {
		return c.profiled(ctx, s.profile, measure)
	}
	return measure()
}
