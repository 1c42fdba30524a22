package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// CSINodes is the resource csinodes.
func CSINodes() *resource.Resource {
	return resource.Define(resource.Definition[storagev1.CSINode, *storagev1.CSINode]{
		GroupVersion:              storagev1.SchemeGroupVersion,
		Kind:                      "CSINode",
		Plural:                    "csinodes",
		ForbidUnconditionalUpdate: true,
		Cluster:                   true,
		Validate:                  validateCSINode,
		ValidateUpdate:            validateCSINodeUpdate,
		Default:                   func(n *storagev1.CSINode) { fill.Absent(&n.Spec.Drivers) },
		// Nothing reports the health of volumes yet (KEP-1432).
		PrepareForCreate: func(_ *resource.Request, n *storagev1.CSINode) { n.Status = storagev1.CSINodeStatus{} },
		PrepareForUpdate: func(_ *resource.Request, n, old *storagev1.CSINode) { n.Status = old.Status },
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Drivers", "integer", storagev1.CSINodeSpec{}.SwaggerDoc()["drivers"]),
			resource.AgeColumn(),
		},
		Row: func(n *storagev1.CSINode, now time.Time) []any {
			return []any{n.Name, int64(len(n.Spec.Drivers)), resource.Age(n.CreationTimestamp, now)}
		},
	})
}
