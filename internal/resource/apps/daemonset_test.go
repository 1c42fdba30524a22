package apps

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestStoredSelector checks that a DaemonSet whose selector has a wrong value can
// change otherwise.
func TestStoredSelector(t *testing.T) {
	set := func(value string, seconds int32) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", ResourceVersion: "1"}}
		const spec = `{selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}`
		if err := yaml.Unmarshal([]byte(spec), &d.Spec); err != nil {
			t.Fatal(err)
		}
		d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "b", Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}}
		d.Spec.MinReadySeconds = seconds
		defaultDaemonSet(d)
		return d
	}
	const value = "spec.selector.matchExpressions[0].values[0]"
	for _, test := range []struct {
		name        string
		stored, now *appsv1.DaemonSet
		want        []string
	}{
		{"right", set("a", 0), set("a", 1), nil},
		{"wrong before", set("a b", 0), set("a b", 1), nil},
		{"wrong from now on", set("a", 0), set("a b", 0), []string{"spec.selector", value}},
		{"new and wrong", nil, set("a b", 0), []string{value}},
	} {
		var got []string
		if test.stored == nil {
			got = fieldsOf(resourcetest.BeforeCreate(DaemonSets(), &resource.RequestContext{}, test.now))
		} else {
			got = fieldsOf(resourcetest.BeforeUpdate(DaemonSets(), &resource.RequestContext{}, test.now, test.stored))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors at %q, want %q", test.name, got, test.want)
		}
	}
}
