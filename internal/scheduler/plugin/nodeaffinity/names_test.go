package nodeaffinity

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNamedNodes(t *testing.T) {
	fields := func(names ...[]string) (term v1.NodeSelectorTerm) {
		for _, values := range names {
			term.MatchFields = append(term.MatchFields, v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: values})
		}
		return term
	}
	other := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorOpExists}}}
	not := fields([]string{"n1"})
	not.MatchFields[0].Operator = v1.NodeSelectorOpNotIn
	for _, test := range []struct {
		name  string
		terms []v1.NodeSelectorTerm
		want  string
	}{
		{"one", []v1.NodeSelectorTerm{fields([]string{"n1"})}, "[n1]"},
		{"one of two", []v1.NodeSelectorTerm{fields([]string{"n1"}), fields([]string{"n2"})}, "[n1 n2]"},
		{"both at once", []v1.NodeSelectorTerm{fields([]string{"n1", "n2"}, []string{"n2", "n3"})}, "[n2]"},
		{"a conflict", []v1.NodeSelectorTerm{fields([]string{"n1"}, []string{"n2"})}, "[]"},
		{"or another label", []v1.NodeSelectorTerm{fields([]string{"n1"}), other}, "all"},
		{"not one", []v1.NodeSelectorTerm{not}, "all"},
		{"no terms", nil, "all"},
	} {
		names := namedNodes(&v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: test.terms}}})
		got := "all"
		if names != nil {
			got = fmt.Sprint(slices.Sorted(maps.Keys(names)))
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
