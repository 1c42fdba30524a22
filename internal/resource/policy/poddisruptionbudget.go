package policy

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/resource"
)

// PodDisruptionBudgets is the resource poddisruptionbudgets.
func PodDisruptionBudgets() *resource.Resource {
	spec, status := policyv1.PodDisruptionBudgetSpec{}.SwaggerDoc(), policyv1.PodDisruptionBudgetStatus{}.SwaggerDoc()
	return resource.Define(resource.Definition[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget]{
		GroupVersion: policyv1.SchemeGroupVersion,
		Kind:         "PodDisruptionBudget",
		Plural:       "poddisruptionbudgets",
		ShortNames:   []string{"pdb"},
		Spec:         func(b *policyv1.PodDisruptionBudget) any { return b.Spec },
		CopyStatus:   func(b, from *policyv1.PodDisruptionBudget) { b.Status = from.Status },
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Min Available", "string", spec["minAvailable"]),
			resource.Column("Max Unavailable", "string", spec["maxUnavailable"]),
			resource.Column("Allowed Disruptions", "integer", status["disruptionsAllowed"]),
			resource.AgeColumn(),
		},
		Row: func(b *policyv1.PodDisruptionBudget, now time.Time) []any {
			return []any{
				b.Name, orNotApplicable(b.Spec.MinAvailable), orNotApplicable(b.Spec.MaxUnavailable),
				int64(b.Status.DisruptionsAllowed), resource.Age(b.CreationTimestamp, now),
			}
		},
	})
}

func orNotApplicable(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}
