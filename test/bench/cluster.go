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

// cluster is the cluster under measurement.
type cluster struct {
	binary, name string
	dir          string // holds all of its files
	layout       layout
	processes    []process
	config       *rest.Config
	readyAfter   time.Duration // from the start of the command to its return
	services     int           // that fill has created
}

// process is a process of a cluster.
type process struct {
	name string
	pid  int
}

// start starts a cluster and waits until it is ready.
func start(ctx context.Context, s *settings, l layout) (*cluster, error) {
	dir, err := os.MkdirTemp("", "coracle-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{binary: s.binary, name: filepath.Base(dir), dir: dir, layout: l}
	// nodes without kubelets stay Ready, and the drain takes the scheduler's lease
	arguments := []string{"up", "--nodes=0", "--controller-manager-arg=controllers=*,-node-lifecycle-controller", "--scheduler-arg=leader-elect=true"}
	switch l {
	case withNode:
		arguments = []string{"up", "--nodes=1"}
	case twoNodes:
		arguments = []string{"up", "--nodes=2"}
	case simulated:
		arguments = []string{"up", "--nodes=0", fmt.Sprintf("--simulated-nodes=%d", s.simulated), "--simulated-node-resources=pods=250"}
	case manySimulated:
		arguments = []string{"up", "--nodes=0", fmt.Sprintf("--simulated-nodes=%d", s.simulatedIdle)}
	}
	kubeconfig := c.kubeconfig()
	began := time.Now()
	out, err := exec.CommandContext(ctx, c.binary, append(arguments, "--name="+c.name, "--bundle="+s.bundle,
		"--data-dir="+filepath.Join(dir, "data"), "--kubeconfig="+kubeconfig)...).CombinedOutput()
	c.readyAfter = time.Since(began)
	if err == nil {
		err = c.connect(kubeconfig)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster: %w\n%s", err, out), c.down())
	}
	return c, nil
}

// kubeconfig returns the path of the administrator's kubeconfig.
func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

func (c *cluster) connect(kubeconfig string) error {
	record, err := host.NewRegistry(host.Root()).Get(c.name)
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

// down removes the cluster and its files.
func (c *cluster) down() error {
	out, err := exec.Command(c.binary, "down", "--yes", "--name="+c.name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("take cluster %s down: %w\n%s", c.name, err, out)
	}
	return os.RemoveAll(c.dir)
}

// measureIdle measures the memory and CPU time of an idle cluster.
func measureIdle(ctx context.Context, s *settings, c *cluster, t *table) error {
	select {
	case <-time.After(s.idle / 2): // wait until the work of the start is done
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
	if c.layout == withNode {
		kind = "with a node"
	}
	var used time.Duration
	for i, p := range c.processes {
		m, err := processMemory(p.pid)
		if err != nil {
			return err
		}
		used += after[i] - before[i]
		t.add("idle memory (RSS), "+kind+": "+p.name, memoryBudgets()[p.name], "%v", m)
	}
	budget := ""
	if c.layout != withNode {
		budget = "0.5 % of a core"
	}
	t.add("idle CPU, "+kind, budget, "%.2f %%", 100*float64(used)/float64(took))
	return nil
}

// memoryBudgets are the memory budgets of the processes, by name.
func memoryBudgets() map[string]string {
	return map[string]string{"supervisor": "10 MB", processes.ControlPlane: "80 MB", processes.Node: "60 MB"}
}

// pid returns the id of the process with that name, 0 if there is none.
func (c *cluster) pid(name string) int {
	for _, p := range c.processes {
		if p.name == name {
			return p.pid
		}
	}
	return 0
}

// cpuTimes returns the CPU times of the processes, in their order.
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

// memory is the resident memory of a process in bytes. The pages of the program
// file count in full for each process that maps them, although they exist once;
// how many are mapped depends on the kernel's page cache. peak is the most that was
// resident since the process began.
type memory struct{ resident, anonymous, peak int64 }

func (m memory) String() string {
	return fmt.Sprintf("%.0f MB, %.0f MB without files", float64(m.resident)/1e6, float64(m.anonymous)/1e6)
}

// processMemory reads a process's VmRSS, RssAnon and VmHWM.
func processMemory(pid int) (m memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	read := func(field string) int64 {
		_, rest, found := strings.Cut(string(status), field+":")
		var kibibytes int64
		if _, e := fmt.Sscan(rest, &kibibytes); !found || e != nil {
			err = fmt.Errorf("process %d: no %s in its status", pid, field)
		}
		return kibibytes << 10
	}
	m = memory{read("VmRSS"), read("RssAnon"), read("VmHWM")}
	return m, err
}

// clockTick is the unit of times in /proc/PID/stat (USER_HZ).
const clockTick = 10 * time.Millisecond

// cpuTime returns the user and system time of a process.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// the command's name, in parentheses, may contain spaces
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
