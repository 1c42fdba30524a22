package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/host"
	supervision "github.com/coracle-io/coracle/internal/processes"
)

// The processes of a cluster that tests kill.
const (
	supervisor = "supervisor"
	containerd = "containerd"
)

// clusterProcesses finds the processes of a cluster.
type clusterProcesses struct {
	name    string // of the cluster
	dataDir string
}

// supervised returns the state of the cluster's processes from its supervisor.
func (p clusterProcesses) supervised(t *testing.T) supervision.Status {
	t.Helper()
	s, ok, err := supervision.Read(host.RunDir(p.name))
	if err != nil || !ok {
		t.Fatalf("the supervisor's status: %t, %v", ok, err)
	}
	return s
}

// pid returns the process id of one of the cluster's processes.
func (p clusterProcesses) pid(t *testing.T, part string) int {
	t.Helper()
	switch s := p.supervised(t); part {
	case supervisor:
		return s.PID
	case containerd:
		pid, err := p.containerdPID()
		if err != nil {
			t.Fatal(err)
		}
		return pid
	default:
		for _, process := range s.Processes {
			if process.Name == part {
				return process.PID
			}
		}
		t.Fatalf("no process %s: %+v", part, s)
		return 0
	}
}

// serverPID returns the process id of the control plane, which serves the API.
func (p clusterProcesses) serverPID(t *testing.T) int {
	t.Helper()
	return p.pid(t, supervision.ControlPlane)
}

// containerdPID returns the process with the cluster's configuration of
// containerd.
func (p clusterProcesses) containerdPID() (int, error) {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range commands {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		arguments := strings.Split(string(raw), "\x00")
		if filepath.Base(arguments[0]) == containerd && slices.Contains(arguments, filepath.Join(p.dataDir, "containerd", "config.toml")) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, errors.New("no containerd runs with the cluster's configuration")
}

// memory returns the anonymous memory of the API server's process in bytes
// (RssAnon, proc(5)), without pages of files, which the kernel can reclaim.
func (p clusterProcesses) memory(t *testing.T) int64 {
	t.Helper()
	bytes, err := resident(p.serverPID(t))
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// resident returns the anonymous memory of a process in bytes.
func resident(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if after, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no RssAnon", pid)
}
