package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// StatefulSets is the resource statefulsets.
func StatefulSets() *resource.Resource {
	return resource.Define(resource.Definition[appsv1.StatefulSet, *appsv1.StatefulSet]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "StatefulSet",
			Plural:     "statefulsets",
			ShortNames: []string{"sts"},
			Categories: []string{"all"},
		},
		Default: defaultStatefulSet,
		Spec:    func(s *appsv1.StatefulSet) any { return s.Spec },
		Status: resource.Status[*appsv1.StatefulSet]{
			Copy:     func(s, from *appsv1.StatefulSet) { s.Status = from.Status },
			Validate: validateStatefulSetStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*appsv1.StatefulSet]{
			PrepareForCreate: func(r *resource.RequestContext, o *appsv1.StatefulSet) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, nil)
				feature.Drop(r.Features, statefulSetFields(), &o.Spec, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, o, old *appsv1.StatefulSet) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, &old.Spec.Template)
				feature.Drop(r.Features, statefulSetFields(), &o.Spec, &old.Spec)
			},
			Validate: func(r *resource.RequestContext, o *appsv1.StatefulSet) field.ErrorList {
				return validateStatefulSet(r, o, nil)
			},
			ValidateUpdate: validateStatefulSetUpdate,
			Warnings: func(_ *resource.RequestContext, o, old *appsv1.StatefulSet) []string {
				warnings := templateWarnings(&o.Spec.Template, statefulSetTemplate(old))
				for i := range o.Spec.VolumeClaimTemplates {
					warnings = append(warnings, volume.ClaimWarnings(&o.Spec.VolumeClaimTemplates[i].Spec, field.NewPath("spec", "volumeClaimTemplates").Index(i))...)
				}
				if limit := o.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
					warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
				}
				return warnings
			},
			ValidateName: validation.NameIsDNSLabel,
		},
		Table: resource.Table[*appsv1.StatefulSet]{
			Columns: append([]metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Ready", "string", "Number of the pod with ready state"),
				resource.AgeColumn(),
			}, printers.ContainersColumns()...),
			Row: statefulSetRow,
		},
		Subresources: []resource.SubresourceDefinition[appsv1.StatefulSet, *appsv1.StatefulSet]{{
			Name: "scale",
			Scale: &resource.ScaleDefinition[appsv1.StatefulSet, *appsv1.StatefulSet]{
				SpecReplicas:   func(s *appsv1.StatefulSet) int32 { return ptr.Deref(s.Spec.Replicas, 1) },
				StatusReplicas: func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
				Selector:       func(s *appsv1.StatefulSet) string { return selectorString(s.Spec.Selector) },
				SetReplicas:    func(s *appsv1.StatefulSet, n int32) { s.Spec.Replicas = &n },
			},
		}},
	})
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	pod.DefaultTemplate(&s.Spec.Template)
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		volume.DefaultClaimSpec(&claim.Spec)
		defaults.Zero(&claim.Status.Phase, corev1.ClaimPending)
		claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	}
	defaults.Zero(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &s.Spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		defaults.Nil(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		defaults.Nil(&strategy.RollingUpdate.Partition, 0)
	}
	defaults.Nil(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	retention := s.Spec.PersistentVolumeClaimRetentionPolicy
	defaults.Zero(&retention.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	defaults.Zero(&retention.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	defaults.Nil(&s.Spec.Replicas, 1)
	defaults.Nil(&s.Spec.RevisionHistoryLimit, 10)
}

func statefulSetRow(s *appsv1.StatefulSet, now time.Time) []any {
	names, images := printers.Containers(s.Spec.Template.Spec.Containers)
	return []any{
		s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 1)),
		resource.Age(s.CreationTimestamp, now), names, images,
	}
}

// statefulSetTemplate returns the template of a StatefulSet that may be nil.
func statefulSetTemplate(s *appsv1.StatefulSet) *corev1.PodTemplateSpec {
	if s == nil {
		return nil
	}
	return &s.Spec.Template
}
