package admission

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// Pod groups get the priority of their class, as pods do.
func TestGroupPriority(t *testing.T) {
	m := objectstest.NewMemory().Put(objects.PriorityClasses, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})
	p := newPriority(config(m))
	for _, c := range []struct {
		class     string
		specified *int32
		want      int32
		wrong     string
	}{
		{"", nil, 0, ""},
		{"high", nil, 1000, ""},
		{"high", ptr.To[int32](1000), 1000, ""},
		{"low", nil, 0, `podgroups.scheduling.k8s.io "g" is forbidden: no PriorityClass with name low was found`},
		{"high", ptr.To[int32](5), 0, `podgroups.scheduling.k8s.io "g" is forbidden: the integer value of priority (5) must not be provided in spec; priority admission controller computed 1000 from the given PriorityClass name`},
	} {
		g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}}
		g.Spec.PriorityClassName, g.Spec.Priority = c.class, c.specified
		if got := run(t, p, write{kind: "PodGroup", resource: "scheduling.k8s.io/podgroups", obj: g}); got != c.wrong {
			t.Errorf("%q: %s", c.class, got)
		}
		if c.wrong == "" && *g.Spec.Priority != c.want {
			t.Errorf("%q: priority %d, want %d", c.class, *g.Spec.Priority, c.want)
		}
	}
}
