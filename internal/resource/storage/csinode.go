package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// CSINodes is the resource csinodes.
func CSINodes() *resource.Resource {
	return resource.Define(resource.Definition[storagev1.CSINode, *storagev1.CSINode]{
		GroupVersion:            storagev1.SchemeGroupVersion,
		Names:                   resource.Names{Kind: "CSINode", Plural: "csinodes"},
		Cluster:                 true,
		Default:                 func(n *storagev1.CSINode) { defaults.Absent(&n.Spec.Drivers) },
		MetadataUpdateUnchecked: true,
		Strategy: resource.Strategy[*storagev1.CSINode]{
			ForbidUnconditionalUpdate: true,
			Validate:                  validateCSINode,
			ValidateUpdate:            validateCSINodeUpdate,
			// Nothing reports the health of volumes yet (KEP-1432).
			PrepareForCreate: func(_ *resource.RequestContext, n *storagev1.CSINode) { n.Status = storagev1.CSINodeStatus{} },
			PrepareForUpdate: func(_ *resource.RequestContext, n, old *storagev1.CSINode) { n.Status = old.Status },
		},
		Table: resource.Table[*storagev1.CSINode]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Drivers", "integer", storagev1.CSINodeSpec{}.SwaggerDoc()["drivers"]),
				resource.AgeColumn(),
			},
			Row: func(n *storagev1.CSINode, now time.Time) []any {
				return []any{n.Name, int64(len(n.Spec.Drivers)), resource.Age(n.CreationTimestamp, now)}
			},
		},
	})
}

func validateCSINode(_ *resource.RequestContext, n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range n.Spec.Drivers {
		at, d := field.NewPath("spec", "drivers").Index(i), &n.Spec.Drivers[i]
		errs = append(errs, validateDriverName(at.Child("name"), d.Name)...)
		if d.NodeID == "" {
			errs = append(errs, field.Required(at.Child("nodeID"), ""))
		} else if len(d.NodeID) > maxNodeID {
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, "must be 256 characters or less"))
		}
		if d.Allocatable != nil {
			errs = append(errs, validators.NonnegativePointer(at.Child("allocatable", "count"), d.Allocatable.Count)...)
		}
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names.Insert(d.Name)
		keys := sets.New[string]()
		for _, key := range d.TopologyKeys {
			if key == "" {
				errs = append(errs, field.Required(at, ""))
			}
			if keys.Has(key) {
				errs = append(errs, field.Duplicate(at, key))
			}
			keys.Insert(key)
			errs = append(errs, validators.Problems(at, key, utilvalidation.IsQualifiedName(key))...)
		}
	}
	return errs
}

// validateCSINodeUpdate keeps the drivers except for allocatable. A driver can
// be removed and added again.
func validateCSINodeUpdate(_ *resource.RequestContext, n, old *storagev1.CSINode) field.ErrorList {
	now := map[string]*storagev1.CSINodeDriver{} // duplicate names are reported elsewhere
	for i := range n.Spec.Drivers {
		now[n.Spec.Drivers[i].Name] = &n.Spec.Drivers[i]
	}
	var errs field.ErrorList
	for i := range old.Spec.Drivers {
		before, d := old.Spec.Drivers[i].DeepCopy(), now[old.Spec.Drivers[i].Name].DeepCopy()
		if d == nil {
			continue
		}
		before.Allocatable, d.Allocatable = nil, nil
		if !equality.Semantic.DeepEqual(before, d) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "drivers"), validators.Shown(*d), "field is immutable"))
		}
	}
	return errs
}
