package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

var now = time.Unix(1_800_000_000, 0)

// observed reads a pod's state from a line: "box", "deadbox" or "noipbox", then
// containers as name:state, newest first. A state is running, created, unknown, oom
// (a process was killed, the code is 0) or an exit code; "old/" before a name puts it
// into an earlier sandbox.
func observed(line string) *cri.Pod {
	p := &cri.Pod{}
	for i, word := range strings.Fields(line) {
		if strings.HasSuffix(word, "box") {
			box := &cri.Sandbox{ID: "box", Ready: word != "deadbox", CreatedAt: now.Add(-time.Hour)}
			if word != "noipbox" {
				box.IPs = []string{"10.0.0.1"}
			}
			p.Sandboxes = append(p.Sandboxes, box)
			continue
		}
		name, state, _ := strings.Cut(word, ":")
		sandbox := "box"
		if rest, ok := strings.CutPrefix(name, "old/"); ok {
			name, sandbox = rest, "gone"
		}
		c := &cri.Container{ID: name + "-id", Name: name, SandboxID: sandbox, CreatedAt: now.Add(-time.Duration(i) * time.Second), FinishedAt: now}
		c.Hash = Hash(&v1.Container{Name: name, Image: "img"})
		switch state {
		case "running":
			c.State = cri.Running
		case "created":
			c.State = cri.Created
		case "unknown":
			c.State = cri.Unknown
		case "changed":
			c.State, c.Hash = cri.Running, "other"
		case "oom":
			c.State, c.Reason = cri.Exited, "OOMKilled"
		default:
			c.State = cri.Exited
			_, _ = fmt.Sscan(state, &c.ExitCode)
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

// podOf makes a pod from names: "i-" begins an init container, "s-" a sidecar,
// "e-" an ephemeral container.
func podOf(policy v1.RestartPolicy, names string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy}}
	always := v1.ContainerRestartPolicyAlways
	for _, name := range strings.Fields(names) {
		c := v1.Container{Name: name, Image: "img"}
		prefix, _, _ := strings.Cut(name, "-")
		switch prefix {
		case "i":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "s":
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "e":
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(c)})
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// text formats a plan as one line.
func text(p Plan) string {
	var out []string
	if p.KillPod {
		out = append(out, "kill-pod")
	}
	for _, k := range p.Kill {
		out = append(out, "kill "+k.Name+" "+k.Reason)
	}
	if p.CreateSandbox {
		out = append(out, fmt.Sprintf("sandbox %d", p.Attempt))
	}
	for _, s := range p.Start {
		out = append(out, fmt.Sprintf("start %s %d", s.Container.Name, s.RestartCount))
	}
	var waiting []string
	for name := range p.Waiting {
		waiting = append(waiting, "wait "+name)
	}
	slices.Sort(waiting)
	return strings.Join(append(out, waiting...), ", ")
}

const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever

// computeTest is a pod, what the runtime has of it, and the plan to expect.
// podOf and observed explain the notation.
type computeTest struct {
	policy   v1.RestartPolicy
	pod      string
	observed string
	failing  string // containers whose liveness probe fails
	waiting  string // containers that are in back-off
	want     string
}

func testCompute(t *testing.T, tests []computeTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s %s | %s", test.policy, test.pod, test.observed), func(t *testing.T) {
			got := Compute(Input{
				Pod: podOf(test.policy, test.pod), Observed: observed(test.observed), Now: now,
				Liveness: func(id string) Result {
					if slices.Contains(strings.Fields(test.failing), strings.TrimSuffix(id, "-id")) {
						return Failure
					}
					return Success
				},
				NotBefore: func(c *v1.Container, finished time.Time) (time.Time, time.Duration) {
					if slices.Contains(strings.Fields(test.waiting), c.Name) {
						return finished.Add(10 * time.Second), 10 * time.Second
					}
					return finished, 0
				},
			})
			if text(got) != test.want {
				t.Errorf("got  %q\nwant %q", text(got), test.want)
			}
		})
	}
}

func TestComputeContainers(t *testing.T) {
	testCompute(t, []computeTest{
		{always, "a b", "", "", "", "sandbox 0, start a 0, start b 0"},
		{always, "a b", "box a:running b:running", "", "", ""},
		{always, "a b", "box b:running", "", "", "start a 0"},
		{always, "a", "box a:1", "", "", "start a 1"},
		{always, "a", "box a:0", "", "", "start a 1"},
		{always, "a", "box a:1", "", "a", "wait a"},
		{always, "a b", "box a:running b:1", "", "b", "wait b"},
		{onFailure, "a", "box a:1", "", "", "start a 1"},
		{onFailure, "a b", "box a:0 b:running", "", "", ""},
		{onFailure, "a", "box a:0", "", "", "kill-pod"},
		{never, "a b", "box a:1 b:running", "", "", ""},
		{never, "a b", "box a:1 b:0", "", "", "kill-pod"},
		{always, "a", "box a:created", "", "", "start a 0"},
		{always, "a", "box a:unknown", "", "", "kill a Unknown, start a 1"},
		{never, "a b", "box a:running b:unknown", "", "", "kill b Unknown, start b 1"}, // it may not have done its work
		{never, "a b", "box a:running b:created", "", "", "start b 0"},
		{onFailure, "a b c", "box a:0 b:created c:running", "", "", "start b 0"},
		{onFailure, "a b c", "box a:0 b:111 c:running", "", "", "start b 1"},
		{always, "a b c", "box a:0 b:111 c:running", "", "", "start a 1, start b 1"},
		{always, "a b", "box a:changed b:running", "", "", "kill a DefinitionChanged, start a 1"},
		{never, "a", "box a:changed", "", "", "kill a DefinitionChanged, start a 1"},
		{always, "a", "box a:running", "a", "", "kill a LivenessProbe, start a 1"},
		{never, "a", "box a:running", "a", "", "kill a LivenessProbe"},
		{always, "a", "box a:running", "a", "a", "kill a LivenessProbe, start a 1"},
		{always, "a", "box a:running a:137", "a", "", "kill a LivenessProbe, start a 1"},
		{always, "a", "box a:running a:137", "a", "a", "kill a LivenessProbe, wait a"},
		{always, "a b", "box a:running b:running a:137", "a", "a", "kill a LivenessProbe, wait a"},
		{always, "a", "box a:unknown a:137", "", "a", "kill a Unknown, wait a"},
	})
}

func TestStartupProbeFails(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]string{always: "kill a StartupProbe, start a 1", never: "kill a StartupProbe"} {
		p := Compute(Input{
			Pod: podOf(policy, "a b"), Observed: observed("box a:running b:running"), Now: now,
			Startup: func(id string) Result {
				if id == "a-id" {
					return Failure
				}
				return Success
			},
		})
		if got := text(p); got != want {
			t.Errorf("%s: %q, want %q", policy, got, want)
		}
	}
}

// The grace period of the probe that fails counts, however long the pod's is.
func TestGraceOfProbes(t *testing.T) {
	probe := func(seconds int64) *v1.Probe { return &v1.Probe{TerminationGracePeriodSeconds: &seconds} }
	fails := func(string) Result { return Failure }
	for _, test := range []struct {
		about             string
		liveness, startup *v1.Probe
		in                Input
		want              int64 // -1: the pod's
	}{
		{"a liveness probe", probe(10), nil, Input{Liveness: fails}, 10},
		{"a liveness probe without its own", &v1.Probe{}, probe(10), Input{Liveness: fails}, -1},
		{"a startup probe", nil, probe(90), Input{Startup: fails}, 90},
		{"the startup probe of both", probe(30), probe(10), Input{Startup: fails}, 10},
		{"the liveness probe of both", probe(30), probe(10), Input{Liveness: fails}, 30},
		{"a resize", probe(30), probe(10), Input{Resized: func(*v1.Container, *cri.Container) bool { return true }}, -1},
	} {
		in := test.in
		in.Pod, in.Observed, in.Now = podOf(always, "a"), observed("box a:running"), now
		in.Pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
		in.Pod.Spec.Containers[0].LivenessProbe, in.Pod.Spec.Containers[0].StartupProbe = test.liveness, test.startup
		kills := Compute(in).Kill
		if len(kills) != 1 {
			t.Errorf("%s: kills %v", test.about, kills)
			continue
		}
		got := int64(-1)
		if kills[0].Grace != nil {
			got = *kills[0].Grace
		}
		if got != test.want {
			t.Errorf("%s: %d s, want %d s", test.about, got, test.want)
		}
	}
}

func TestComputeSandboxes(t *testing.T) {
	testCompute(t, []computeTest{
		{always, "a", "deadbox a:137", "", "", "kill-pod, sandbox 1, start a 1"},
		{never, "a", "deadbox a:137", "", "", "kill-pod"},
		{onFailure, "a b", "deadbox a:0 b:137", "", "", "kill-pod, sandbox 1, start b 1"},
		{onFailure, "a b", "deadbox a:0 b:0", "", "", "kill-pod"},
		{onFailure, "a b c", "deadbox a:running b:0 c:running", "", "", "kill-pod, sandbox 1, start a 1, start c 1"},
		{never, "a b", "deadbox", "", "", "kill-pod, sandbox 1, start a 0, start b 0"}, // they have never run
		{always, "a b", "noipbox a:running b:running", "", "", "kill-pod, sandbox 1, start a 1, start b 1"},
		{always, "i-x a", "deadbox a:137 i-x:0", "", "", "kill-pod, sandbox 1, start i-x 1"},
	})
}

func TestComputeInitContainers(t *testing.T) {
	testCompute(t, []computeTest{
		{always, "i-x i-y a", "", "", "", "sandbox 0, start i-x 0"},
		{always, "i-x i-y a", "box", "", "", "start i-x 0"},
		{always, "i-x i-y a", "box i-x:running", "", "", ""},
		{always, "i-x i-y a", "box i-x:0", "", "", "start i-y 0"},
		{always, "i-x i-y a", "box i-y:0 i-x:0", "", "", "start a 0"},
		{always, "i-x a", "box i-x:1", "", "", "start i-x 1"},
		{always, "i-x a", "box i-x:1", "", "i-x", "wait i-x"},
		{never, "i-x a", "box i-x:1", "", "", "kill-pod"},
		{always, "i-x a", "box a:1", "", "", "start a 1"},
		{always, "i-x a", "box old/i-x:0", "", "", "start i-x 1"},
		{always, "i-x i-y i-z a", "box i-z:running", "", "", ""}, // the records of the others are gone
		{always, "i-x i-y a", "box i-y:0", "", "", "start a 0"},
		{always, "i-x a", "box i-x:created", "", "", "start i-x 0"},
		{onFailure, "i-x a", "box i-x:unknown", "", "", "kill i-x Unknown, start i-x 1"},
		{never, "i-x a", "box i-x:unknown", "", "", "kill-pod"},
		{onFailure, "i-x a", "box i-x:oom", "", "", "start i-x 1"},
		{never, "i-x a", "box i-x:oom", "", "", "start a 0"},
	})
}

func TestComputeSidecars(t *testing.T) {
	testCompute(t, []computeTest{
		{always, "s-x i-y a", "box", "", "", "start s-x 0"},
		{always, "s-x i-y a", "box s-x:running", "", "", "start i-y 0"},
		{always, "s-x a", "box s-x:running a:running", "", "", ""},
		{never, "s-x a", "box a:running s-x:1", "", "", "start s-x 1"},
		{never, "s-x a", "box a:0 s-x:running", "", "", "kill-pod"},
		{always, "s-x a", "box a:running s-x:running", "s-x", "", "kill s-x LivenessProbe, start s-x 1"},
		{always, "s-x a", "box a:running s-x:running s-x:137", "s-x", "s-x", "kill s-x LivenessProbe, wait s-x"},
		{always, "s-x a", "box a:running s-x:unknown", "", "", "kill s-x Unknown, start s-x 1"},
		{always, "i-x a", "deadbox i-x:1", "", "i-x", "kill-pod, sandbox 1, wait i-x"},
		{never, "s-x a", "box s-x:1", "", "", "start s-x 1"},
		{never, "s-x a", "box s-x:unknown", "", "", "kill s-x Unknown, start s-x 1"},
		{always, "s-x s-y s-z a", "box s-x:0 s-y:running s-z:0", "", "", "start s-x 1, start s-z 1"},
		{always, "s-x s-y a", "box s-x:1 s-y:running", "", "s-x", "start a 0, wait s-x"}, // it has started once
		{always, "s-x s-y a", "box s-y:running", "", "", "start s-x 0, start a 0"},
		{always, "s-x a", "box s-x:running", "s-x", "", "kill s-x LivenessProbe, start s-x 1, start a 0"},
		{always, "s-x a", "box s-x:changed", "", "", "kill s-x DefinitionChanged, start s-x 1, start a 0"},
	})
}

func TestComputeEphemeralContainers(t *testing.T) {
	testCompute(t, []computeTest{
		{always, "a e-d", "box a:running", "", "", "start e-d 0"},
		{always, "a e-d", "box a:running e-d:0", "", "", ""},
		{always, "a e-d", "box a:running e-d:created", "", "", "start e-d 0"}, // its start failed
	})
}

// Ephemeral containers may be added to a pod that was admitted, and never removed.
func TestManyEphemeralContainers(t *testing.T) {
	pod := podOf(always, "a")
	for i := range 2 * MaxContainers {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: fmt.Sprint("e-", i)}})
	}
	got := Compute(Input{Pod: pod, Observed: observed("box a:running"), Now: now, Liveness: func(string) Result { return Success }})
	if n := len(got.Start); n != MaxContainers-1 || got.Start[n-1].Container.Name != fmt.Sprint("e-", n-1) {
		t.Errorf("%d of %d ephemeral containers start", n, len(pod.Spec.EphemeralContainers))
	}
}

func TestBackOff(t *testing.T) {
	b := BackOff{Initial: 10 * time.Second, Max: 5 * time.Minute}
	at := now
	var got []time.Duration
	for range 8 {
		until, delay := b.Until("a", at, at)
		got = append(got, delay)
		b.Started("a", at, until)
		at = until.Add(time.Second)
	}
	want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute}
	if !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
	if _, delay := b.Until("a", at.Add(11*time.Minute), at.Add(11*time.Minute)); delay != 0 {
		t.Errorf("a container that ran for eleven minutes still waits %s", delay)
	}
}

// A container is stable after ten minutes, also if it never waits for long.
func TestShortBackOff(t *testing.T) {
	for lasts, want := range map[time.Duration]time.Duration{time.Second: 2 * time.Second, 5 * time.Minute: 2 * time.Second, 11 * time.Minute: 0} {
		b := BackOff{Initial: 2 * time.Second, Max: 2 * time.Second}
		b.Started("a", now, now)
		exit := now.Add(lasts)
		if until, delay := b.Until("a", exit, exit); delay != want || until.Sub(exit) != want {
			t.Errorf("after it ran for %s, it waits %s for a back-off of %s, want %s", lasts, until.Sub(exit), delay, want)
		}
	}
}

// A container waits no longer than its back-off if the clock is set back after
// it has exited, whether or not it waits already.
func TestBackOffAfterTheClockIsSetBack(t *testing.T) {
	b := BackOff{Initial: 10 * time.Second, Max: 5 * time.Minute}
	exit := now.Add(time.Hour)
	if until, _ := b.Until("a", exit, now); until.After(now) {
		t.Errorf("the first restart waits %s", until.Sub(now))
	}
	b.Started("a", exit, exit)
	exit = exit.Add(time.Second)
	first, delay := b.Until("a", exit, now)
	again, _ := b.Until("a", exit, now.Add(5*time.Second))
	if wait := first.Sub(now); delay != 10*time.Second || wait != delay || !again.Equal(first) {
		t.Errorf("the second restart waits %s for a back-off of %s, later until %s", wait, delay, again.Sub(now))
	}
	exit = now.Add(-4 * time.Second)
	if until, _ := b.Until("a", exit, now); until.Sub(now) != 6*time.Second {
		t.Errorf("4 s after the exit, the second restart waits %s", until.Sub(now))
	}
}

// A rule decides before the container's policy, and that before the pod's.
func TestShouldRestartByRule(t *testing.T) {
	on := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, test := range []struct {
		pod   v1.RestartPolicy
		own   v1.ContainerRestartPolicy
		rules []v1.ContainerRestartRule
		code  int32
		want  bool
	}{
		{"", "Never", []v1.ContainerRestartRule{on(in, 42, 50, 60)}, 42, true},
		{"", "Never", []v1.ContainerRestartRule{on(in, 42, 50, 60)}, 0, false},
		{"", "Never", []v1.ContainerRestartRule{on(notIn, 0, 1, 2)}, 99, true},
		{"", "Never", []v1.ContainerRestartRule{on(in, 10, 20)}, 30, false},
		{"", "Never", []v1.ContainerRestartRule{on(notIn, 10, 20)}, 10, false},
		{"", "Never", []v1.ContainerRestartRule{on(in, 10), on(in, 20)}, 20, true},
		{"Never", "Always", []v1.ContainerRestartRule{on(in, 10)}, 0, true},
		{"Never", "Always", nil, 0, true},
		{"Never", "OnFailure", nil, 0, false},
		{"Never", "OnFailure", nil, 1, true},
		{"Always", "Never", nil, 1, false},
		{"Always", "", nil, 0, true},
		{"OnFailure", "", nil, 1, true},
		{"OnFailure", "", nil, 0, false},
		{"Never", "", nil, 1, false},
		{"", "", nil, 0, true},
	} {
		p := podOf(test.pod, "a")
		c := &p.Spec.Containers[0]
		c.RestartPolicyRules = test.rules
		if test.own != "" {
			c.RestartPolicy = &test.own
		}
		if got := ShouldRestart(p, c, test.code); got != test.want {
			t.Errorf("pod %q, container %q, rules %+v, code %d: restarts %t", test.pod, test.own, test.rules, test.code, got)
		}
		p.DeletionTimestamp = &metav1.Time{Time: now}
		if ShouldRestart(p, c, test.code) {
			t.Errorf("pod %q, container %q: restarts while the pod ends", test.pod, test.own)
		}
	}
}
