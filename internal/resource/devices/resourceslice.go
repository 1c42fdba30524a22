package devices

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// ResourceSlices is the resource resourceslices.
func ResourceSlices() *resource.Resource {
	doc := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[resourcev1.ResourceSlice, *resourcev1.ResourceSlice]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Kind:         "ResourceSlice",
		Plural:       "resourceslices",
		Cluster:      true,
		Spec:         func(s *resourcev1.ResourceSlice) any { return s.Spec },
		PrepareForCreate: func(r *resource.Request, s *resourcev1.ResourceSlice) {
			feature.Drop(r.Features, sliceFields, &s.Spec, nil)
			dateTaints(&s.Spec, r.Now)
		},
		PrepareForUpdate: func(r *resource.Request, s, old *resourcev1.ResourceSlice) {
			feature.Drop(r.Features, sliceFields, &s.Spec, &old.Spec)
			dateTaints(&s.Spec, r.Now)
		},
		Validate: func(_ *resource.Request, s *resourcev1.ResourceSlice) field.ErrorList {
			return validateSlice(&s.Spec, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, s, old *resourcev1.ResourceSlice) field.ErrorList {
			return validateSlice(&s.Spec, &old.Spec)
		},
		Warnings: sliceWarnings,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Node", "string", doc["nodeName"]),
			resource.Column("Driver", "string", doc["driver"]),
			resource.Column("Pool", "string", resourcev1.ResourcePool{}.SwaggerDoc()["name"]),
			resource.AgeColumn(),
		},
		Row: func(s *resourcev1.ResourceSlice, now time.Time) []any {
			return []any{
				s.Name, ptr.Deref(s.Spec.NodeName, ""), s.Spec.Driver, s.Spec.Pool.Name, resource.Age(s.CreationTimestamp, now),
			}
		},
		SelectableFields: func(s *resourcev1.ResourceSlice) fields.Set {
			return fields.Set{"spec.nodeName": ptr.Deref(s.Spec.NodeName, ""), "spec.driver": s.Spec.Driver}
		},
		Fields: []string{"spec.driver", "spec.nodeName"},
	})
}

// dateTaints says of taints that they are new where nothing does.
func dateTaints(s *resourcev1.ResourceSliceSpec, now time.Time) {
	for i := range s.Devices {
		for k := range s.Devices[i].Taints {
			if taint := &s.Devices[i].Taints[k]; taint.TimeAdded == nil {
				added := resource.Seconds(now)
				taint.TimeAdded = &added
			}
		}
	}
}
