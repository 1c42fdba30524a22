package framework

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The terms of pods of one namespace cost pods of other namespaces nothing, unless
// they name these namespaces or select them by labels.
func TestExistingTermsOfANamespace(t *testing.T) {
	s := NewSnapshot()
	pods := map[string]*PodInfo{}
	add := func(name, namespace string, change func(*v1.PodAffinityTerm)) {
		term := v1.PodAffinityTerm{TopologyKey: name, LabelSelector: &metav1.LabelSelector{}}
		change(&term)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
		pods[name] = NewPodInfo(p)
		s.AddPod(pods[name], "n")
	}
	add("own", "a", func(*v1.PodAffinityTerm) {})
	add("other", "b", func(*v1.PodAffinityTerm) {})
	add("names", "b", func(t *v1.PodAffinityTerm) { t.Namespaces = []string{"a", "c"} })
	add("selects", "b", func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} })
	add("both", "b", func(t *v1.PodAffinityTerm) {
		t.Namespaces, t.NamespaceSelector = []string{"a"}, &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}
	})
	want := func(expected map[string]string) {
		t.Helper()
		for namespace, want := range expected {
			var got []string
			for term := range s.ExistingTerms(namespace) {
				got = append(got, term.Term.TopologyKey)
			}
			if slices.Sort(got); strings.Join(got, " ") != want {
				t.Errorf("namespace %s: %q, want %q", namespace, got, want)
			}
		}
	}
	want(map[string]string{"a": "both names own selects", "b": "both other selects", "c": "both names selects", "d": "both selects"})
	for _, p := range pods {
		s.RemovePod(p, "n")
	}
	want(map[string]string{"a": "", "b": "", "c": "", "d": ""})
	if n := len(s.index.byNamespace); n != 0 {
		t.Errorf("%d namespaces are left: %s", n, fmt.Sprint(s.index.byNamespace))
	}
}

// A count costs pods of other namespaces nothing, and is told of all of its own.
func TestCountsOfNamespaces(t *testing.T) {
	s := NewSnapshot()
	pods := map[string]*PodInfo{}
	for _, ns := range []string{"a", "b", "c"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: types.UID(ns), Labels: map[string]string{"app": "web"}}}
		pods[ns] = NewPodInfo(p)
		s.AddPod(pods[ns], "n")
	}
	asked := 0
	one := s.CountPods("one", "a", func(p *PodInfo) bool {
		if asked++; p.Pod.Namespace != "a" {
			t.Errorf("a count of pods of namespace a is asked about one of %s", p.Pod.Namespace)
		}
		return true
	})
	term := func(change func(*v1.PodAffinityTerm)) *PodCount {
		raw := v1.PodAffinityTerm{TopologyKey: "k", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
		change(&raw)
		return s.CountPodsOfTerms([]AffinityTerm{newTerm(pods["a"].Pod, &raw)})
	}
	two := term(func(t *v1.PodAffinityTerm) { t.Namespaces = []string{"a", "c"} })
	all := term(func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} })
	want := func(inOne, inTwo, inAll int64) {
		t.Helper()
		if n := s.known["n"]; one.On(n) != inOne || two.On(n) != inTwo || all.On(n) != inAll {
			t.Errorf("counts %d, %d and %d, want %d, %d and %d", one.On(n), two.On(n), all.On(n), inOne, inTwo, inAll)
		}
	}
	want(1, 2, 3)
	for i, change := range []struct {
		namespace           string
		inOne, inTwo, inAll int64
	}{{"b", 1, 2, 2}, {"c", 1, 1, 1}} {
		s.RemovePod(pods[change.namespace], "n")
		if want(change.inOne, change.inTwo, change.inAll); asked != 1 {
			t.Errorf("step %d: the count of one namespace was asked %d times", i, asked)
		}
	}
	s.AddPod(pods["c"], "n")
	want(1, 2, 2)
	s.SetNamespace("a", map[string]string{"changed": "yes"})
	if n := len(s.index.countsIn) + len(s.index.counts); n != 0 {
		t.Errorf("%d counts are left", n)
	}
}

// Counts that are dropped because there are too many are told of nothing any more.
func TestOldCountsAreDropped(t *testing.T) {
	s := NewSnapshot()
	for i := range maxPodCounts + 1 {
		s.CountPods(fmt.Sprint(i), fmt.Sprint("ns-", i%2), func(*PodInfo) bool { return true })
	}
	s.Trim()
	left := len(s.index.countsIn["ns-0"]) + len(s.index.countsIn["ns-1"])
	if want := maxPodCounts * 3 / 4; len(s.index.counts) != want || left != want {
		t.Errorf("%d counts are left, %d of them by namespace, want %d", len(s.index.counts), left, want)
	}
}
