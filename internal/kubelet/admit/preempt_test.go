package admit

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// As few and as unimportant pods as possible make room for a critical one.
func TestVictims(t *testing.T) {
	of := func(name string, priority int32, milli int64, limited bool) *v1.Pod {
		list := v1.ResourceList{}
		if milli > 0 {
			list[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
			list[v1.ResourceMemory] = *resource.NewQuantity(milli<<20, resource.BinarySI)
		}
		c := v1.Container{Name: "main", Resources: v1.ResourceRequirements{Requests: list}}
		if limited {
			c.Resources.Limits = list.DeepCopy()
		}
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{c}}}
	}
	const critical = 2_000_000_000
	pods := map[string]*v1.Pod{
		"critical": of("critical", critical, 100, false), "least": of("least", 0, 0, false),
		"burstable": of("burstable", 0, 100, false), "large-burstable": of("large-burstable", 0, 300, false),
		"guaranteed": of("guaranteed", 0, 100, true), "large-guaranteed": of("large-guaranteed", 0, 300, true),
	}
	const cpu, memory = v1.ResourceCPU, v1.ResourceMemory
	for _, test := range []struct {
		running string
		needs   needs
		want    string
	}{
		{"", needs{}, ""},
		{"", needs{v1.ResourcePods: 1}, ""},
		{"least", needs{memory: 1 << 20}, ""},
		{"least burstable", needs{v1.ResourcePods: 1}, "least"},
		{"burstable", needs{v1.ResourcePods: 1, memory: 100 << 20, cpu: 100}, "burstable"},
		{"burstable", needs{v1.ResourcePods: 2, memory: 200 << 20, cpu: 200}, ""},
		{"burstable guaranteed", needs{v1.ResourcePods: 1}, "burstable"},
		{"burstable large-burstable", needs{memory: 100 << 20, cpu: 100}, "burstable"},
		{"burstable large-burstable", needs{memory: 150 << 20, cpu: 150}, "large-burstable"},
		{"burstable large-burstable guaranteed large-guaranteed", needs{memory: 350 << 20, cpu: 350}, "burstable large-burstable"},
		{"least burstable large-burstable guaranteed large-guaranteed", needs{memory: 550 << 20}, "large-burstable large-guaranteed"},
	} {
		var running []*v1.Pod
		for _, name := range strings.Fields(test.running) {
			running = append(running, pods[name])
		}
		var got []string
		for _, p := range test.needs.victims(running) {
			got = append(got, p.Name)
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s for %v: %q, want %q", test.running, test.needs, text, test.want)
		}
	}

	policy := &Policy{Allocatable: func() v1.ResourceList { return v1.ResourceList{cpu: resource.MustParse("400m")} }}
	running := []*v1.Pod{pods["critical"], pods["large-burstable"]}
	lacks := &Rejection{Reason: "OutOfcpu"}
	if got := policy.Victims(of("new", critical, 200, false), lacks, running, running); len(got) != 1 || got[0] != running[1] {
		t.Errorf("the victims are %v", got)
	}
	if got := policy.Victims(of("new", critical+1000, 200, false), lacks, running, running[:1]); len(got) != 0 {
		t.Errorf("%v does not suffice", got)
	}
	if got := policy.Victims(of("new", critical+1000, 100, false), lacks, running, running[:1]); len(got) != 1 || got[0] != running[0] {
		t.Errorf("the victims for a pod that the node needs are %v", got)
	}
	needed := []*v1.Pod{of("needed", critical+1000, 100, false), pods["large-burstable"]}
	if got := policy.Victims(of("new", critical, 100, false), lacks, needed, needed[:1]); len(got) != 0 {
		t.Errorf("%v is more important", got)
	}
	if got := policy.Victims(of("new", critical-1, 200, false), lacks, running, running); got != nil {
		t.Errorf("%v for a pod that is not critical", got)
	}
	if got := policy.Victims(of("new", critical, 200, false), &Rejection{Reason: "NodeAffinity"}, running, running); got != nil {
		t.Errorf("%v for a pod that the node rejects anyway", got)
	}
}
