package podgroup

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(namespace, name, group string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	if group != "" {
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	}
	return p
}

func TestMembers(t *testing.T) {
	g := New()
	for _, p := range []*v1.Pod{pod("a", "1", "x"), pod("a", "1", "x"), pod("a", "2", "x"), pod("a", "3", "y"), pod("b", "4", "x"), pod("a", "5", "")} {
		g.Set(p)
	}
	want := func(namespace, group, want string) {
		t.Helper()
		var names []string
		for _, p := range g.Members(types.NamespacedName{Namespace: namespace, Name: group}) {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s/%s has %q, want %q", namespace, group, got, want)
		}
		if n := g.Count(types.NamespacedName{Namespace: namespace, Name: group}); n != len(names) {
			t.Errorf("%s/%s has %d pods, want %d", namespace, group, n, len(names))
		}
	}
	want("a", "x", "1 2")
	want("a", "y", "3")
	want("b", "x", "4")
	want("a", "", "")
	for _, p := range []*v1.Pod{pod("a", "1", "x"), pod("a", "1", "x"), pod("a", "3", "y"), pod("a", "5", "")} {
		g.Delete(p)
	}
	want("a", "x", "2")
	if len(g.members) != 2 {
		t.Errorf("%d groups are left, want 2", len(g.members))
	}
}
