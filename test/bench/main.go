// Command bench measures a whole cluster through the real binary and prints
// one row for each budget: what, the budget, what was measured. It starts
// clusters of its own, beside any that run, and takes them away again.
//
//	start ─ idle ─ api (5,000 pods, 32 clients) ─ watch ─ schedule ─► --nodes=0
//	start ─ idle ─ pods ─► --nodes=1
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	binary, bundle string
	profile        string
	only           []string
	pods, clients  int
	idle           time.Duration
}

func main() {
	s := settings{}
	only := ""
	flag.StringVar(&s.binary, "binary", "bin/coracle", "binary to measure")
	flag.StringVar(&s.bundle, "bundle", "bin/bundle", "its container runtime")
	flag.StringVar(&only, "only", "", "parts to measure, separated by commas: "+strings.Join(partNames(), ", "))
	flag.StringVar(&s.profile, "profile", "", "file to write a CPU profile of the control plane to")
	flag.IntVar(&s.pods, "pods", 5000, "pods in the API server's measurements")
	flag.IntVar(&s.clients, "clients", 32, "requests at a time")
	flag.DurationVar(&s.idle, "idle", 20*time.Second, "how long to watch an idle cluster")
	flag.Parse()
	if only != "" {
		s.only = strings.Split(only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part measures one cluster in one respect.
type part struct {
	name    string
	node    bool // measured on a cluster with a node
	measure func(ctx context.Context, s *settings, c *cluster, t *table) error
}

// parts are in the order in which they share a cluster.
func parts() []part {
	return []part{
		{"idle", false, measureIdle},
		{"api", false, measureAPI},
		{"watch", false, measureWatch},
		{"schedule", false, measureScheduling},
		{"idle", true, measureIdle},
		{"pods", true, measurePods},
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
	for _, node := range []bool{false, true} {
		if err := s.measureCluster(ctx, node, t); err != nil {
			return err
		}
	}
	return nil
}

// measureCluster runs the parts of one kind of cluster, each of which cleans
// up what it made, and takes the cluster away whatever happens.
func (s *settings) measureCluster(ctx context.Context, node bool, t *table) (err error) {
	var wanted []part
	for _, p := range parts() {
		if p.node == node && (len(s.only) == 0 || slices.Contains(s.only, p.name)) {
			wanted = append(wanted, p)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	c, err := start(ctx, s, node)
	if err != nil {
		return err
	}
	defer func() {
		if downErr := c.down(); err == nil {
			err = downErr
		}
	}()
	if node {
		t.add("start to node Ready", "1.5 s", "%.2f s", c.readyAfter.Seconds())
	} else {
		t.add("start to /readyz", "0.4 s", "%.2f s", c.readyAfter.Seconds())
	}
	measure := func() error {
		for _, p := range wanted {
			if err := p.measure(ctx, s, c, t); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	}
	if s.profile != "" && !node {
		return c.profiled(ctx, s.profile, measure)
	}
	return measure()
}
