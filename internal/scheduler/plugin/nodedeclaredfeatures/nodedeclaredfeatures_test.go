package nodedeclaredfeatures

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

const restartAll = "RestartAllContainersOnContainerExits"

func node(declared ...string) *v1.Node {
	return &v1.Node{Status: v1.NodeStatus{DeclaredFeatures: declared}}
}

// podThat needs restartAll, or nothing.
func podThat(restarts bool) *framework.PodInfo {
	c := v1.Container{Name: "main"}
	if restarts {
		c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	}
	return framework.NewPodInfo(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}})
}

func newTestPlugin(t *testing.T, h *framework.Handle) *plugin {
	t.Helper()
	made, err := Factory().New(t.Context(), nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return made.(*plugin)
}

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *framework.PodInfo
		node *v1.Node
		want string
	}{
		{"a pod that needs nothing", podThat(false), node(), "skipped"},
		{"a node that declares the feature", podThat(true), node("Another", restartAll), ""},
		{"a node that declares nothing", podThat(true), node(), "node declared features check failed - unsatisfied requirements: " + restartAll},
		{"a node that declares another feature", podThat(true), node("Another"), "node declared features check failed - unsatisfied requirements: " + restartAll},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &framework.Handle{}
			p, n := newTestPlugin(t, h), framework.NewNodeInfo("a")
			n.SetNode(test.node)
			state, got := framework.NewCycleState(h), "skipped"
			if _, s := p.PreFilter(t.Context(), state, test.pod, nil); !s.IsSkip() {
				got = p.Filter(t.Context(), state, test.pod, n).Message()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestHints(t *testing.T) {
	events, err := newTestPlugin(t, &framework.Handle{}).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"a node with the feature comes", framework.Node, framework.Add, nil, node(restartAll), framework.Queue},
		{"a node without it comes", framework.Node, framework.Add, nil, node(), framework.QueueSkip},
		{"a node declares it", framework.Node, framework.UpdateNodeDeclaredFeature, node(), node(restartAll), framework.Queue},
		{"a node declares another", framework.Node, framework.UpdateNodeDeclaredFeature, node(), node("Another"), framework.QueueSkip},
		{"a node is labeled", framework.Node, framework.UpdateNodeLabel, node(restartAll), node(restartAll), framework.QueueSkip},
		{"the pod needs it no longer", framework.TargetPod, framework.UpdateOther, podThat(true).Pod, podThat(false).Pod, framework.Queue},
		{"the pod changes otherwise", framework.TargetPod, framework.UpdateOther, podThat(true).Pod, podThat(true).Pod, framework.QueueSkip},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, happened := framework.QueueSkip, framework.ClusterEvent{Resource: test.resource, Action: test.action}
			for _, e := range events {
				if e.Event.Matches(happened) && (e.Hint == nil || e.Hint(podThat(true), test.old, test.new) == framework.Queue) {
					got = framework.Queue
				}
			}
			if got != test.want {
				t.Errorf("hint %d, want %d", got, test.want)
			}
		})
	}
}
