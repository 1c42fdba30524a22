package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/feature"
)

// A node admits pods that tolerate its NoExecute taints. The operators Lt and
// Gt count if their gate is on (KEP-5471).
func TestTaints(t *testing.T) {
	const on, off = "TaintTolerationComparisonOperators=true", "TaintTolerationComparisonOperators=false"
	node := &v1.Node{Spec: v1.NodeSpec{Taints: []v1.Taint{
		{Key: "sla", Value: "95", Effect: v1.TaintEffectNoExecute}, {Key: "age", Value: "3", Effect: v1.TaintEffectNoSchedule},
	}}}
	for _, test := range []struct {
		name, gates string
		toleration  v1.Toleration
		want        string // reason of the rejection
	}{
		{"another key", on, v1.Toleration{Key: "other", Operator: v1.TolerationOpExists}, "TaintToleration"},
		{"equal", off, v1.Toleration{Key: "sla", Value: "95"}, ""},
		{"the gate is off", off, v1.Toleration{Key: "sla", Operator: v1.TolerationOpGt, Value: "90"}, "TaintToleration"},
		{"greater", on, v1.Toleration{Key: "sla", Operator: v1.TolerationOpGt, Value: "90"}, ""},
		{"not greater", on, v1.Toleration{Key: "sla", Operator: v1.TolerationOpGt, Value: "95"}, "TaintToleration"},
		{"less", on, v1.Toleration{Key: "sla", Operator: v1.TolerationOpLt, Value: "99"}, ""},
	} {
		gates, err := feature.Parse([]string{test.gates})
		if err != nil {
			t.Fatal(err)
		}
		p := Policy{
			Pressure: func() []v1.NodeConditionType { return nil }, Node: func() *v1.Node { return node },
			Allocatable: func() v1.ResourceList { return nil }, Features: gates,
		}
		got := ""
		if r := p.Admit(&v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{test.toleration}}}, nil); r != nil {
			got = r.Reason
		}
		if got != test.want {
			t.Errorf("%s: rejected by %q, want %q", test.name, got, test.want)
		}
	}
}

// A pod that the known Node cannot take may have been scheduled to a newer one.
func TestStaleNode(t *testing.T) {
	stale, latest := &v1.Node{}, &v1.Node{}
	latest.Labels = map[string]string{"disk": "ssd"}
	for name, test := range map[string]struct {
		latest *v1.Node
		want   string // reason of the rejection
	}{
		"the label is new":   {latest, ""},
		"there is no label":  {stale, "NodeAffinity"},
		"the server is away": {nil, "NodeAffinity"},
	} {
		p := Policy{
			Pressure: func() []v1.NodeConditionType { return nil }, Node: func() *v1.Node { return stale }, LatestNode: func() *v1.Node { return test.latest },
			Allocatable: func() v1.ResourceList { return nil },
		}
		got := ""
		if r := p.Admit(&v1.Pod{Spec: v1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}}, nil); r != nil {
			got = r.Reason
		}
		if got != test.want {
			t.Errorf("%s: rejected by %q, want %q", name, got, test.want)
		}
	}
}

// A node whose runtime adds the groups of images admits no pod that forbids them.
func TestGroupsPolicyOfTheNode(t *testing.T) {
	with := &v1.Node{Status: v1.NodeStatus{Features: &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)}}}
	without := &v1.Node{Status: v1.NodeStatus{Features: &v1.NodeFeatures{SupplementalGroupsPolicy: new(false)}}}
	for name, test := range map[string]struct {
		policy       v1.SupplementalGroupsPolicy // "": none
		node, latest *v1.Node
		want         string // reason of the rejection
	}{
		"none":                        {"", &v1.Node{}, nil, ""},
		"the image's groups":          {v1.SupplementalGroupsPolicyMerge, without, nil, ""},
		"its own":                     {v1.SupplementalGroupsPolicyStrict, with, nil, ""},
		"its own, by another runtime": {v1.SupplementalGroupsPolicyStrict, without, without, "SupplementalGroupsPolicyNotSupported"},
		"its own, nothing is known":   {v1.SupplementalGroupsPolicyStrict, &v1.Node{}, nil, "SupplementalGroupsPolicyNotSupported"},
		"its own, by a new runtime":   {v1.SupplementalGroupsPolicyStrict, &v1.Node{}, with, ""},
	} {
		p := Policy{
			Pressure: func() []v1.NodeConditionType { return nil }, Node: func() *v1.Node { return test.node }, LatestNode: func() *v1.Node { return test.latest },
			Allocatable: func() v1.ResourceList { return nil },
		}
		pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{}}}
		if test.policy != "" {
			pod.Spec.SecurityContext.SupplementalGroupsPolicy = &test.policy
		}
		got := ""
		if r := p.Admit(pod, nil); r != nil {
			got = r.Reason
		}
		if got != test.want {
			t.Errorf("%s: rejected by %q, want %q", name, got, test.want)
		}
	}
}

// A node that has no devices of a plugin any more runs pods that have a resource by a
// claim.
func TestResourcesByClaims(t *testing.T) {
	const gpu, reason = "example.com/gpu", "OutOfexample.com/gpu"
	for name, test := range map[string]struct {
		mapped      string // the resource of the claim, "" without one
		allocatable v1.ResourceList
		want        string // reason of the rejection
	}{
		"never a plugin":       {"", v1.ResourceList{}, ""},
		"none is left":         {"", v1.ResourceList{gpu: resource.MustParse("0")}, reason},
		"by a claim":           {gpu, v1.ResourceList{gpu: resource.MustParse("0")}, ""},
		"another by a claim":   {"example.com/nic", v1.ResourceList{gpu: resource.MustParse("0")}, reason},
		"the plugin has fewer": {gpu, v1.ResourceList{gpu: resource.MustParse("1")}, ""},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{gpu: resource.MustParse("2")}}}}}}
		if test.mapped != "" {
			pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
				RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: test.mapped}}}
		}
		got := ""
		if r := Check(pod, nil, nil, test.allocatable, nil); r != nil {
			got = r.Reason
		}
		if got != test.want {
			t.Errorf("%s: rejected by %q, want %q", name, got, test.want)
		}
	}
}
