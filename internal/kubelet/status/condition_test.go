package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

// A pod whose containers cannot start says what its sandbox lacks.
func TestWhyContainersCannotStart(t *testing.T) {
	for want, test := range map[string]struct {
		sandboxes   []*cri.Sandbox
		hostNetwork bool
	}{
		"False PodSandboxNotReady no pod sandbox exists":         {},
		"False PodSandboxNotReady pod sandbox is not ready":      {sandboxes: []*cri.Sandbox{{ID: "1", IPs: []string{"10.0.0.1"}}}},
		"False PodSandboxNotReady pod sandbox has no IP address": {sandboxes: []*cri.Sandbox{{ID: "1", Ready: true}}},
		"False PodSandboxNotReady more than one pod sandbox is ready": {
			sandboxes: []*cri.Sandbox{{ID: "2", Ready: true, IPs: []string{"10.0.0.2"}}, {ID: "1", Ready: true, IPs: []string{"10.0.0.1"}}}},
		"False PodSandboxNotReady pod sandbox has another network namespace mode": {
			sandboxes: []*cri.Sandbox{{ID: "1", Ready: true, IPs: []string{"10.0.0.1"}}}, hostNetwork: true},
		"True  ": {sandboxes: []*cri.Sandbox{{ID: "1", Ready: true, HostNetwork: true}}, hostNetwork: true},
	} {
		st := Generate(Input{
			Pod: &v1.Pod{Spec: v1.PodSpec{HostNetwork: test.hostNetwork, Containers: []v1.Container{{Name: "main"}}}},
			Now: time.Unix(1_800_000_000, 0), Observed: &cri.Pod{Sandboxes: test.sandboxes},
		})
		for _, c := range st.Conditions {
			if c.Type == v1.PodReadyToStartContainers && string(c.Status)+" "+c.Reason+" "+c.Message != want {
				t.Errorf("%+v, want %s", c, want)
			}
		}
		if len(st.Conditions) == 0 {
			t.Errorf("no conditions")
		}
	}
}

// The message about very many readiness gates fits into a status.
func TestManyReadinessGates(t *testing.T) {
	pod := &v1.Pod{}
	for i := range 10_000 {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, v1.PodReadinessGate{ConditionType: v1.PodConditionType(fmt.Sprintf("example.com/gate-%d", i))})
	}
	c := ready(Input{Pod: pod}, &v1.PodStatus{}, v1.PodCondition{Status: v1.ConditionTrue})
	if c.Reason != "ReadinessGatesNotReady" || len(c.Message) > 16<<10 || !strings.HasSuffix(c.Message, ", and maybe others") {
		t.Errorf("%s: a message of %d bytes: %.100s", c.Reason, len(c.Message), c.Message)
	}
}
