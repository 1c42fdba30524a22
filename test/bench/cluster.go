package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// cluster is one that was started to be measured.
type cluster struct {
	binary, name string
	dir          string // holds all of its files
	node         bool
	processes    []process
	config       *rest.Config
	readyAfter   time.Duration // from the start of the command to its return
}

// process is one of a cluster's.
type process struct {
	name string
	pid  int
}

// start starts a cluster with or without a node and waits until it is ready.
func start(ctx context.Context, s *settings, node bool) (*cluster, error) {
	dir, err := os.MkdirTemp("", "coracle-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{binary: s.binary, name: filepath.Base(dir), dir: dir, node: node}
	nodes := "--nodes=0"
	if node {
		nodes = "--nodes=1"
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	began := time.Now()
	out, err := exec.CommandContext(ctx, c.binary, "up", "--name="+c.name, nodes, "--bundle="+s.bundle,
		"--data-dir="+filepath.Join(dir, "data"), "--kubeconfig="+kubeconfig).CombinedOutput()
	c.readyAfter = time.Since(began)
	if err == nil {
		err = c.connect(kubeconfig)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster: %w\n%s", err, out), c.down())
	}
	return c, nil
}

func (c *cluster) connect(kubeconfig string) error {
	record, err := host.NewRegistry(host.Root).Get(c.name)
	if err != nil {
		return err
	}
	c.processes = []process{{"supervisor", record.PID}}
	status, _, err := processes.Read(host.RunDir(c.name))
	if err != nil {
		return err
	}
	for _, p := range status.Processes {
		c.processes = append(c.processes, process{p.Name, p.PID})
	}
	c.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	return err
}

// down takes the cluster and its files away.
func (c *cluster) down() error {
	out, err := exec.Command(c.binary, "down", "--yes", "--name="+c.name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("take cluster %s down: %w\n%s", c.name, err, out)
	}
	return os.RemoveAll(c.dir)
}

// measureIdle tells what a cluster that nobody uses takes.
func measureIdle(ctx context.Context, s *settings, c *cluster, t *table) error {
	select {
	case <-time.After(s.idle / 2): // the work of starting has to settle first
	case <-ctx.Done():
		return ctx.Err()
	}
	before, err := c.cpuTimes()
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-time.After(s.idle):
	case <-ctx.Done():
		return ctx.Err()
	}
	took := time.Since(began)
	after, err := c.cpuTimes()
	if err != nil {
		return err
	}
	kind := "control plane alone"
	if c.node {
		kind = "with a node"
	}
	var used time.Duration
	for i, p := range c.processes {
		memory, err := residentMemory(p.pid)
		if err != nil {
			return err
		}
		used += after[i] - before[i]
		t.add("idle memory (RSS), "+kind+": "+p.name, memoryBudgets()[p.name], "%.0f MB", float64(memory)/1e6)
	}
	budget := ""
	if !c.node {
		budget = "0.5 % of a core"
	}
	t.add("idle CPU, "+kind, budget, "%.2f %%", 100*float64(used)/float64(took))
	return nil
}

// memoryBudgets are what the processes may take, by name.
func memoryBudgets() map[string]string {
	return map[string]string{"supervisor": "10 MB", processes.ControlPlane: "80 MB", processes.Node: "60 MB"}
}

// cpuTimes are those of the processes, in their order.
func (c *cluster) cpuTimes() ([]time.Duration, error) {
	var all []time.Duration
	for _, p := range c.processes {
		used, err := cpuTime(p.pid)
		if err != nil {
			return nil, err
		}
		all = append(all, used)
	}
	return all, nil
}

// residentMemory is a process's VmRSS in bytes.
func residentMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(status), "VmRSS:")
	var kibibytes int64
	if _, err := fmt.Sscan(rest, &kibibytes); !found || err != nil {
		return 0, fmt.Errorf("process %d: no VmRSS in its status", pid)
	}
	return kibibytes << 10, nil
}

// clockTick is the unit of times in /proc/PID/stat (USER_HZ).
const clockTick = 10 * time.Millisecond

// cpuTime is the time that a process has run so far, in the kernel too.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// the command's name, in parentheses, may hold blanks
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var user, system int64
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d: its stat has %d fields", pid, len(fields))
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	return time.Duration(user+system) * clockTick, nil
}
