package scheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// PriorityClasses is the resource priorityclasses.
func PriorityClasses() *resource.Resource {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return resource.Define(resource.Definition[schedulingv1.PriorityClass, *schedulingv1.PriorityClass]{
		GroupVersion: schedulingv1.SchemeGroupVersion,
		Kind:         "PriorityClass",
		Plural:       "priorityclasses",
		ShortNames:   []string{"pc"},
		Cluster:      true,
		Default: func(c *schedulingv1.PriorityClass) {
			fill.Nil(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Value", "integer", doc["value"]),
			resource.Column("Global-Default", "boolean", doc["globalDefault"]),
			resource.AgeColumn(),
			resource.Column("PreemptionPolicy", "string", doc["preemptionPolicy"]),
		},
		Row: func(c *schedulingv1.PriorityClass, now time.Time) []any {
			policy := ptr.Deref(c.PreemptionPolicy, corev1.PreemptLowerPriority)
			return []any{c.Name, int64(c.Value), c.GlobalDefault, resource.Age(c.CreationTimestamp, now), string(policy)}
		},
	})
}
