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
