package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/goldentest"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// The JSON output has the same problems of processes as the text.
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
		err := errors.Join((&clusterStatus{}).inspect([]processes.Process{test.process})...)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
}

// A manifest that cannot be applied, a port of Ingresses that is taken and an address that
// the machine has lost are problems, and up does not wait for them.
func TestManifestsIngressesAndAddressesAreNoPartOfReadiness(t *testing.T) {
	p := processes.Process{Name: processes.ControlPlane, PID: 1, Ready: true, Since: time.Now()}
	for components, ready := range map[string]bool{
		`[{"name":"manifests","phase":"Running","conditions":[{"name":"Manifests","message":"a.yaml: unknown field"}]}]`:                                                  true,
		`[{"name":"ingress","phase":"Running","conditions":[{"name":"HTTP","message":"port 80 is taken"}]}]`:                                                              true,
		`[{"name":"addresses","phase":"Running","conditions":[{"name":"Address","message":"this machine has lost 192.0.2.2"}]}]`:                                          true,
		`[{"name":"addresses","phase":"BackOff","lastError":"panic"}]`:                                                                                                    false,
		`[{"name":"ingress","phase":"BackOff","lastError":"panic"}]`:                                                                                                      false,
		`[{"name":"manifests","phase":"BackOff","lastError":"panic"}]`:                                                                                                    false,
		`[{"name":"manifests","phase":"Running","conditions":[{"name":"Manifests","message":"a.yaml"}]},{"name":"dns","phase":"Running","conditions":[{"message":"b"}]}]`: false,
	} {
		c := &clusterStatus{}
		p.Components = []byte(components)
		c.setProblem(exitImpaired, c.inspect([]processes.Process{p})...)
		if c.err == nil || (c.notReady == nil) != ready {
			t.Errorf("%s: problem %v, not ready because of %v", components, c.err, c.notReady)
		}
	}
}

// The record says what a cluster occupies. What it runs with is in its settings,
// and status shows it.
func TestOptionsAreStoredOnce(t *testing.T) {
	s, err := host.ReadSettings(settled(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	s.Options.APIServerArgs = []string{"service-node-port-range=20000-20009", "anonymous-auth=false"}
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	rec := host.NewRecord(s, host.Record{})
	if rec.NodePorts != "20000-20009" || rec.ClusterCIDR != s.Options.ClusterCIDR || rec.Node.NFTable != "coracle-a" {
		t.Errorf("the record has %+v", rec.Occupied)
	}
	if diff := cmp.Diff(&s.Options, statusOf(t.Context(), rec).Options); diff != "" {
		t.Errorf("status shows other options than the settings (-want +got):\n%s", diff)
	}
}

func TestProblemsOfTheNode(t *testing.T) {
	dir := t.TempDir()
	s := host.Settings{Nodes: 1, Options: cluster.Options{Name: "a", DataDir: dir, NodeName: "own", KubeletArgs: []string{"v=2"}}}
	s.Kubeconfig, s.Options.BindAddress = dir+"/config", "0.0.0.0"
	s.Complete(0, "host", dir, "")
	for _, test := range []struct {
		nodes map[string]string
		here  int
		want  string
	}{
		{map[string]string{"own": nodeReady, "other": "NotReady: gone"}, 1, ""},
		{map[string]string{"own": "NotReady: runtime down"}, 1, "node own is NotReady: runtime down"},
		{map[string]string{"other": nodeReady}, 1, "node own does not exist"},
		{nil, 0, ""},
	} {
		c := &clusterStatus{record: host.Record{Nodes: test.here}, Options: &s.Options, Nodes: test.nodes}
		if err := c.nodeProblem(); test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v: %v, want %q", test.nodes, err, test.want)
		}
	}
}

// A network that another program brings is a problem, and up does not wait for it.
func TestANetworkOfOthersIsNoPartOfReadiness(t *testing.T) {
	for network, ready := range map[string]bool{"none": true, "": false} {
		s := host.Settings{Nodes: 1, Options: cluster.Options{Name: "a", DataDir: t.TempDir(), NodeName: "own", Node: &cluster.NodeOptions{Network: network}}}
		c := &clusterStatus{record: host.Record{Nodes: 1}, Options: &s.Options, Nodes: map[string]string{"own": "NotReady: KubeletNotReady: no configuration"}, lackNetwork: map[string]bool{"own": true}}
		c.setProblem(exitImpaired, c.nodeProblem())
		if c.err == nil || (c.notReady == nil) != ready {
			t.Errorf("network %q: problem %v, not ready because of %v", network, c.err, c.notReady)
		}
		c.setProblem(exitImpaired, c.nodeProblem(), errors.New("the control plane is down"))
		if c.notReady == nil {
			t.Errorf("network %q: ready without a control plane", network)
		}
	}
}

// status says that settings are damaged, lost or another cluster's, and what to
// do, whether the cluster runs or not.
func TestStatusOfUnusableSettings(t *testing.T) {
	for what, test := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"damaged":           {func(dir string) error { return os.WriteFile(host.SettingsFile(dir), []byte("{"), 0o600) }, "settings.json: the file is damaged (unexpected end of JSON input): repair it, it is JSON, or remove the cluster with coracle down --data-dir="},
		"lost":              {func(dir string) error { return os.Remove(host.SettingsFile(dir)) }, "where settings.json is missing: mount its disk or put back what is lost"},
		"another cluster's": {func(dir string) error { return os.Rename(host.SettingsFile(settled(t, "b")), host.SettingsFile(dir)) }, "holds the data of cluster b, not of cluster a"},
	} {
		s, err := host.ReadSettings(settled(t, "a"))
		if err != nil {
			t.Fatal(err)
		}
		rec := host.NewRecord(s, host.Record{})
		if err := test.change(rec.DataDir); err != nil {
			t.Fatal(err)
		}
		c := statusOf(t.Context(), rec)
		if coded := (codedError{}); !errors.As(c.err, &coded) || coded.code != exitStopped || strings.Count(c.Problem, test.want) != 1 || c.Options != nil {
			t.Errorf("%s: %v; want one line with %q", what, c.err, test.want)
		}
		start, err := host.StartTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		rec.PID, rec.PIDStart = os.Getpid(), start
		c = statusOf(t.Context(), rec)
		if coded := (codedError{}); !errors.As(c.err, &coded) || coded.code != exitImpaired || strings.Count(c.Problem, test.want) != 1 {
			t.Errorf("%s, running: %v; want one line with %q", what, c.err, test.want)
		}
	}
}

// statusExample has a value in each field of a status.
func statusExample() *clusterStatus {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	components, _ := json.Marshal([]cluster.Component{{ // a Component can always be encoded
		Name: "dns", Phase: cluster.BackOff, Since: began, NextStart: began, Restarts: 2, Panics: 1, LastError: "port 53 is taken", LastErrorTime: began, Panicked: true,
		Conditions: []cluster.Condition{{Name: "NoSpace", Message: "the disk is full", Since: began}},
	}})
	return &clusterStatus{
		Name: "dev", DataDir: "/var/lib/coracle/dev", Running: true, Problem: "node own is NotReady", Notes: []string{"pods are ended later"}, Server: "https://127.0.0.1:6443",
		Kubeconfig: "/root/.kube/config", ContextLost: "it has no context dev", PID: 7, Unit: "coracle.service", Started: began, BinaryVersion: "v1.37.2+coracle",
		Options: &cluster.Options{Name: "dev"},
		Supervisor: &processes.Status{PID: 7, Start: 100, Since: began, Ready: true, Processes: []processes.Process{{
			Name: processes.Node, PID: 8, Start: 101, Since: began, Ready: true, Restarts: 1, LastEnd: began, LastCause: "killed by signal 9", NextStart: began, Components: components,
		}}},
		Version: "v1.37.2+coracle", Nodes: map[string]string{"own": "NotReady"}, Pods: 3, RunningPods: 2,
	}
}

// Programs read the output of status -o json. A change of testdata/status.json
// is a change for them.
func TestStatusKeepsItsForm(t *testing.T) {
	var out strings.Builder
	if err := statusExample().writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("it is not one line: %q", out.String())
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(out.String()), "", "  "); err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/status.json", indented.String(), os.Getenv("REWRITE") != "", "REWRITE=1 go test ./cmd/coracle")
}

// docs/components.md describes each field of status -o json.
func TestFieldsOfStatusAreDescribed(t *testing.T) {
	docs, err := os.ReadFile("../../docs/components.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[clusterStatus](), reflect.TypeFor[processes.Status](), reflect.TypeFor[processes.Process](),
		reflect.TypeFor[cluster.Component](), reflect.TypeFor[cluster.Condition](),
	} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.IsExported() && (name == "" || !strings.Contains(string(docs), "`"+name+"`")) {
				t.Errorf("%v.%s: docs/components.md does not describe `%s`", of, field.Name, name)
			}
			if !field.IsExported() {
				continue
			}
			if of == reflect.TypeFor[clusterStatus]() && reflect.ValueOf(*statusExample()).FieldByIndex(field.Index).IsZero() {
				t.Errorf("%s is not in the example", field.Name)
			}
		}
	}
}

// Where processes may not lower their OOM scores, the status of a cluster with nodes says
// so, and that all of it works.
func TestScoresThatAreNotLowered(t *testing.T) {
	for _, test := range []struct{ nodes, score, notes int }{{1, 0, 1}, {1, -999, 0}, {0, 0, 0}} {
		c := &clusterStatus{Running: true}
		c.record.Nodes = test.nodes
		c.noteScore(test.score)
		var out strings.Builder
		c.WriteText(&out)
		if len(c.Notes) != test.notes || strings.Contains(out.String(), "OOM score adjustment is 0, not -999") != (test.notes > 0) || c.Problem != "" {
			t.Errorf("%d nodes, adjustment %d: %q, %q\n%s", test.nodes, test.score, c.Notes, c.Problem, out.String())
		}
	}
}

// A process that is suspended is known at once, and no command waits for it.
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
	c := &clusterStatus{}
	err := errors.Join(c.inspect([]processes.Process{{Name: processes.Node, PID: cmd.Process.Pid, Start: stat.Start, Ready: true}})...)
	if !c.hasSuspended || err == nil || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("%v, held %v", err, c.hasSuspended)
	}
}

func TestExitCodes(t *testing.T) {
	c := &clusterStatus{}
	c.setProblem(exitImpaired, errors.New("dns ended"))
	var out strings.Builder
	if code := report(&out, errors.Join(nil, c.err)); code != exitImpaired || out.String() != "coracle: dns ended\n" || c.Problem != "dns ended" {
		t.Errorf("code %d, %q", code, out.String())
	}
	_, err := mustFind(host.NewRegistry(t.TempDir()), "none-of-this-name")
	if code := report(&out, err); code != exitNoCluster {
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
