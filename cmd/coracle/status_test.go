package main

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// What text tells of a process that does not do its work, scripts learn too.
func TestProblemsOfProcesses(t *testing.T) {
	well := processes.Process{Name: processes.ControlPlane, PID: 1, Ready: true, Since: time.Now()}
	with := func(components string) processes.Process {
		p := well
		p.Components = []byte(components)
		return p
	}
	for what, test := range map[string]struct {
		process processes.Process
		want    string // "" is no problem
	}{
		"well":         {well, ""},
		"worked again": {with(`[{"name":"dns","phase":"Running","restarts":3,"lastError":"panic"}]`), ""},
		"in back-off":  {processes.Process{Name: processes.Node, Restarts: 4, LastCause: "killed by signal 9", NextStart: time.Now().Add(time.Minute)}, "node not running, started again in 1m"},
		"begins":       {processes.Process{Name: processes.Node, PID: 1, Since: time.Now()}, "not ready yet"},
		"component":    {with(`[{"name":"dns","phase":"BackOff","lastError":"port 53 is taken"}]`), "dns ended, started again in 0s: port 53 is taken"},
		"condition":    {with(`[{"name":"containerd","phase":"Running","conditions":[{"name":"Ended","message":"containerd ended"}]}]`), "containerd ended"},
	} {
		err := errors.Join((&condition{}).inspect([]processes.Process{test.process})...)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
}

func TestProblemsOfTheNode(t *testing.T) {
	dir := t.TempDir()
	s := host.Settings{Name: "a", DataDir: dir, Nodes: 1, NodeName: "own", KubeletArgs: []string{"v=2"}}
	s.Kubeconfig, s.BindAddress = dir+"/config", "0.0.0.0"
	s.Complete(0, "host", dir, "")
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		nodes map[string]string
		alone bool
		want  string
	}{
		{map[string]string{"own": nodeReady, "other": "NotReady: gone"}, false, ""},
		{map[string]string{"own": "NotReady: runtime down"}, false, "node own is NotReady: runtime down"},
		{map[string]string{"other": nodeReady}, false, "node own is not there"},
		{nil, true, ""},
	} {
		c := &condition{Record: host.Record{DataDir: dir, ControlOnly: test.alone}, Nodes: test.nodes}
		if err := c.nodeProblem(); test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v: %v, want %q", test.nodes, err, test.want)
		}
	}
}

// A process that is suspended is known at once, and waited for by nobody.
func TestASuspendedProcessIsAProblem(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
		t.Fatal(err)
	}
	stat, _ := processes.ReadStat(cmd.Process.Pid)
	c := &condition{}
	err := errors.Join(c.inspect([]processes.Process{{Name: processes.Node, PID: cmd.Process.Pid, Start: stat.Start, Ready: true}})...)
	if !c.held || err == nil || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("%v, held %v", err, c.held)
	}
}

func TestExitCodes(t *testing.T) {
	c := &condition{}
	c.wrong(exitImpaired, errors.New("dns ended"))
	var out strings.Builder
	if code := tell(&out, errors.Join(nil, c.err)); code != exitImpaired || out.String() != "coracle: dns ended\n" || c.Problem != "dns ended" {
		t.Errorf("code %d, %q", code, out.String())
	}
	_, err := existing(host.NewRegistry(t.TempDir()), "none-of-this-name")
	if code := tell(&out, err); code != exitNoCluster {
		t.Errorf("no cluster: code %d (%v)", code, err)
	}
}

func TestEtcdctlHelp(t *testing.T) {
	for _, args := range []string{"", "--help", "-h", "help", "help get", "get --help"} {
		if !asksForHelp(strings.Fields(args)) {
			t.Errorf("%q asks for no help", args)
		}
	}
	for _, args := range []string{"get help", "endpoint status"} {
		if asksForHelp(strings.Fields(args)) {
			t.Errorf("%q asks for help", args)
		}
	}
}
