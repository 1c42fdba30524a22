package dynamicresources

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
		GroupVersion:         resourcev1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "ResourceSlice", Plural: "resourceslices"},
		Cluster:              true,
		Spec:                 func(s *resourcev1.ResourceSlice) any { return s.Spec },
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*resourcev1.ResourceSlice]{
			PrepareForCreate: func(r *resource.RequestContext, s *resourcev1.ResourceSlice) {
				feature.Drop(r.Features, sliceFields(), &s.Spec, nil)
				setTaintTimes(&s.Spec, r.Now)
			},
			PrepareForUpdate: func(r *resource.RequestContext, s, old *resourcev1.ResourceSlice) {
				feature.Drop(r.Features, sliceFields(), &s.Spec, &old.Spec)
				setTaintTimes(&s.Spec, r.Now)
			},
			Validate: func(_ *resource.RequestContext, s *resourcev1.ResourceSlice) field.ErrorList {
				return validateSlice(&s.Spec, nil)
			},
			ValidateUpdate: func(_ *resource.RequestContext, s, old *resourcev1.ResourceSlice) field.ErrorList {
				return validateSlice(&s.Spec, &old.Spec)
			},
			Warnings: sliceWarnings,
		},
		Table: resource.Table[*resourcev1.ResourceSlice]{
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
		},
		FieldSelectors: resource.FieldSelectors[*resourcev1.ResourceSlice]{
			SelectableFields: func(s *resourcev1.ResourceSlice) fields.Set {
				return fields.Set{
					resourcev1.ResourceSliceSelectorNodeName: ptr.Deref(s.Spec.NodeName, ""),
					resourcev1.ResourceSliceSelectorDriver:   s.Spec.Driver,
					resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name,
				}
			},
			Fields: []string{resourcev1.ResourceSliceSelectorDriver, resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorPoolName},
		},
	})
}

// setTaintTimes sets the missing times of taints to now.
func setTaintTimes(s *resourcev1.ResourceSliceSpec, now time.Time) {
	for i := range s.Devices {
		for k := range s.Devices[i].Taints {
			if taint := &s.Devices[i].Taints[k]; taint.TimeAdded == nil {
				added := resource.Seconds(now)
				taint.TimeAdded = &added
			}
		}
	}
}
