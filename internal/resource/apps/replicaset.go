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
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// ReplicaSets is the resource replicasets.
func ReplicaSets() *resource.Resource {
	return resource.Define(resource.Definition[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Kind:         "ReplicaSet",
		Plural:       "replicasets",
		ShortNames:   []string{"rs"},
		Categories:   []string{"all"},
		Default:      defaultReplicaSet,
		Spec:         func(r *appsv1.ReplicaSet) any { return r.Spec },
		CopyStatus:   func(r, from *appsv1.ReplicaSet) { r.Status = from.Status },
		PrepareForCreate: func(r *resource.Request, o *appsv1.ReplicaSet) {
			core.DropDisabledPodTemplateFields(r.Features, &o.Spec.Template, nil)
		},
		PrepareForUpdate: func(r *resource.Request, o, old *appsv1.ReplicaSet) {
			core.DropDisabledPodTemplateFields(r.Features, &o.Spec.Template, &old.Spec.Template)
		},
		Validate:             func(r *resource.Request, o *appsv1.ReplicaSet) field.ErrorList { return validateReplicaSet(r, o, nil) },
		UpdateValidatesAlone: true,
		ValidateUpdate:       validateReplicaSetUpdate,
		PrepareStatus: func(r *resource.Request, o, old *appsv1.ReplicaSet) {
			feature.Drop(r.Features, replicaSetStatusFields, &o.Status, &old.Status)
		},
		ValidateStatus: validateReplicaSetStatus,
		Warnings: func(_ *resource.Request, o, old *appsv1.ReplicaSet) []string {
			var before *corev1.PodTemplateSpec
			if old != nil {
				before = &old.Spec.Template
			}
			return append(nameWarnings(o, old == nil), templateWarnings(&o.Spec.Template, before)...)
		},
		Columns: append(append([]metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Desired", "integer", appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"]),
			resource.Column("Current", "integer", appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"]),
			resource.Column("Ready", "integer", appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"]),
			resource.AgeColumn(),
		}, cell.ContainersColumns()...), cell.SelectorColumn(appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"])),
		Row: replicaSetRow,
		SelectableFields: func(r *appsv1.ReplicaSet) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(r.Status.Replicas))}
		},
		Fields: []string{"status.replicas"},
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
	core.DefaultPodTemplateSpec(&r.Spec.Template)
	fill.Nil(&r.Spec.Replicas, 1)
}

func replicaSetRow(r *appsv1.ReplicaSet, now time.Time) []any {
	names, images := cell.Containers(r.Spec.Template.Spec.Containers)
	return []any{
		r.Name, int64(ptr.Deref(r.Spec.Replicas, 1)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
		resource.Age(r.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(r.Spec.Selector),
	}
}
