package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
)

// Leases is the resource leases.
func Leases() *resource.Resource {
	return resource.Define(resource.Definition[coordinationv1.Lease, *coordinationv1.Lease]{
		GroupVersion:        coordinationv1.SchemeGroupVersion,
		Kind:                "Lease",
		Plural:              "leases",
		AllowCreateOnUpdate: true,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Holder", "string", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]),
			resource.AgeColumn(),
		},
		Row: func(l *coordinationv1.Lease, now time.Time) []any {
			return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), resource.Age(l.CreationTimestamp, now)}
		},
	})
}
