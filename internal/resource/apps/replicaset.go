package apps

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// ReplicaSets is the resource replicasets.
func ReplicaSets() *resource.Resource {
	return resource.Define(resource.Definition[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "ReplicaSet",
			Plural:     "replicasets",
			ShortNames: []string{"rs"},
			Categories: []string{"all"},
		},
		Default: defaultReplicaSet,
		Spec:    func(r *appsv1.ReplicaSet) any { return r.Spec },
		Status: resource.Status[*appsv1.ReplicaSet]{
			Copy: func(r, from *appsv1.ReplicaSet) { r.Status = from.Status },
			Prepare: func(r *resource.RequestContext, o, old *appsv1.ReplicaSet) {
				feature.Drop(r.Features, replicaSetStatusFields(), &o.Status, &old.Status)
			},
			Validate: validateReplicaSetStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*appsv1.ReplicaSet]{
			PrepareForCreate: func(r *resource.RequestContext, o *appsv1.ReplicaSet) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, o, old *appsv1.ReplicaSet) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, &old.Spec.Template)
			},
			Validate: func(r *resource.RequestContext, o *appsv1.ReplicaSet) field.ErrorList {
				return validateReplicaSet(r, o, nil)
			},
			ValidateUpdate: validateReplicaSetUpdate,
			Warnings: func(_ *resource.RequestContext, o, old *appsv1.ReplicaSet) []string {
				return append(nameWarnings(o, old == nil), templateWarnings(&o.Spec.Template, replicaSetTemplate(old))...)
			},
		},
		Table: resource.Table[*appsv1.ReplicaSet]{
			Columns: append(append([]metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Desired", "integer", appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"]),
				resource.Column("Current", "integer", appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"]),
				resource.Column("Ready", "integer", appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"]),
				resource.AgeColumn(),
			}, printers.ContainersColumns()...), printers.SelectorColumn(appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"])),
			Row: replicaSetRow,
		},
		FieldSelectors: resource.FieldSelectors[*appsv1.ReplicaSet]{
			SelectableFields: func(r *appsv1.ReplicaSet) fields.Set {
				return fields.Set{"status.replicas": strconv.Itoa(int(r.Status.Replicas))}
			},
			Fields: []string{"status.replicas"},
		},
		Subresources: []resource.SubresourceDefinition[appsv1.ReplicaSet, *appsv1.ReplicaSet]{{
			Name: "scale",
			Scale: &resource.ScaleDefinition[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
				SpecReplicas:   func(r *appsv1.ReplicaSet) int32 { return ptr.Deref(r.Spec.Replicas, 1) },
				StatusReplicas: func(r *appsv1.ReplicaSet) int32 { return r.Status.Replicas },
				Selector:       func(r *appsv1.ReplicaSet) string { return selectorString(r.Spec.Selector) },
				SetReplicas:    func(r *appsv1.ReplicaSet, n int32) { r.Spec.Replicas = &n },
			},
		}},
	})
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	pod.DefaultTemplate(&r.Spec.Template)
	defaults.Nil(&r.Spec.Replicas, 1)
}

func replicaSetRow(r *appsv1.ReplicaSet, now time.Time) []any {
	names, images := printers.Containers(r.Spec.Template.Spec.Containers)
	return []any{
		r.Name, int64(ptr.Deref(r.Spec.Replicas, 1)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
		resource.Age(r.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(r.Spec.Selector),
	}
}

// replicaSetTemplate returns the template of a ReplicaSet that may be nil.
func replicaSetTemplate(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec {
	if r == nil {
		return nil
	}
	return &r.Spec.Template
}
