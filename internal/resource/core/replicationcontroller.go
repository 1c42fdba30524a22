package core

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/fill"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// ReplicationControllers is the resource replicationcontrollers.
func ReplicationControllers() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ReplicationController, *corev1.ReplicationController]{
		GroupVersion: corev1.SchemeGroupVersion,
		Kind:         "ReplicationController",
		Plural:       "replicationcontrollers",
		ShortNames:   []string{"rc"},
		Categories:   []string{"all"},
		StoragePath:  "controllers",
		Default:      defaultReplicationController,
		Spec:         func(rc *corev1.ReplicationController) any { return &rc.Spec },
		CopyStatus:   func(rc, from *corev1.ReplicationController) { rc.Status = from.Status },
		PrepareForCreate: func(r *resource.Request, rc *corev1.ReplicationController) {
			DropDisabledPodTemplateFields(r.Features, rc.Spec.Template, nil)
		},
		PrepareForUpdate: func(r *resource.Request, rc, old *corev1.ReplicationController) {
			DropDisabledPodTemplateFields(r.Features, rc.Spec.Template, old.Spec.Template)
		},
		ValidateStatus: func(_ *resource.Request, rc, _ *corev1.ReplicationController) field.ErrorList {
			return validateReplicaCounts(&rc.Status, field.NewPath("status"))
		},
		Validate: func(r *resource.Request, rc *corev1.ReplicationController) field.ErrorList {
			return validateReplicationController(r, rc, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(r *resource.Request, rc, old *corev1.ReplicationController) field.ErrorList {
			return validateReplicationController(r, rc, old)
		},
		ValidateName: PodName,
		Warnings: func(_ *resource.Request, rc, old *corev1.ReplicationController) []string {
			var warnings []string
			var oldTemplate *corev1.PodTemplateSpec
			if old == nil {
				warnings = rule.PodNameWarnings(rc.Name)
			} else {
				oldTemplate = old.Spec.Template
			}
			return append(warnings, PodTemplateWarnings(rc.Spec.Template, oldTemplate, field.NewPath("spec", "template"))...)
		},
		DefaultPropagation: metav1.DeletePropagationOrphan,
		Columns: append(append([]metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Desired", "integer", corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"]),
			resource.Column("Current", "integer", corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"]),
			resource.Column("Ready", "integer", corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"]),
			resource.AgeColumn(),
		}, cell.ContainersColumns()...), cell.SelectorColumn(corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"])),
		Row: replicationControllerRow,
		SelectableFields: func(rc *corev1.ReplicationController) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
		},
		Fields: []string{"status.replicas"},
		Subresources: []resource.SubresourceDefinition[corev1.ReplicationController, *corev1.ReplicationController]{{
			Name: "scale",
			Scale: &resource.ScaleDefinition[corev1.ReplicationController, *corev1.ReplicationController]{
				SpecReplicas:   func(rc *corev1.ReplicationController) int32 { return ptr.Deref(rc.Spec.Replicas, 1) },
				StatusReplicas: func(rc *corev1.ReplicationController) int32 { return rc.Status.Replicas },
				Selector: func(rc *corev1.ReplicationController) string {
					return labels.Set(rc.Spec.Selector).AsSelector().String()
				},
				SetReplicas: func(rc *corev1.ReplicationController, n int32) { rc.Spec.Replicas = &n },
			},
		}},
	})
}

// defaultReplicationController selects and labels by the template's labels.
func defaultReplicationController(rc *corev1.ReplicationController) {
	if rc.Spec.Template != nil {
		if templateLabels := rc.Spec.Template.Labels; len(templateLabels) > 0 {
			if len(rc.Spec.Selector) == 0 {
				rc.Spec.Selector = templateLabels
			}
			if len(rc.Labels) == 0 {
				rc.Labels = templateLabels
			}
		}
		DefaultPodTemplateSpec(rc.Spec.Template)
	}
	fill.Nil(&rc.Spec.Replicas, 1)
}

func replicationControllerRow(rc *corev1.ReplicationController, now time.Time) []any {
	var containers []corev1.Container
	if rc.Spec.Template != nil {
		containers = rc.Spec.Template.Spec.Containers
	}
	names, images := cell.Containers(containers)
	return []any{
		rc.Name, int64(ptr.Deref(rc.Spec.Replicas, 1)), int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas),
		resource.Age(rc.CreationTimestamp, now), names, images, labels.FormatLabels(rc.Spec.Selector),
	}
}

func validateReplicationController(r *resource.Request, rc, old *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	spec := &rc.Spec
	errs := nonnegative(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	errs = append(errs, nonnegative(int64(ptr.Deref(spec.Replicas, 0)), path.Child("replicas"))...)
	if spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), ""))
	}
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = old.Spec.Template
	}
	template := path.Child("template")
	selector := labels.Set(spec.Selector).AsSelectorPreValidated()
	if !selector.Empty() && !selector.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(template.Child("metadata", "labels"), spec.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	errs = append(errs, ValidatePodTemplateSpec(spec.Template, template, PodTemplateOptions(r.Features, oldTemplate))...)
	return append(errs, validateReplicatedTemplate(&spec.Template.Spec, template.Child("spec"))...)
}

// validateReplicatedTemplate refuses what would end a pod for which another
// takes its place at once.
func validateReplicatedTemplate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("restartPolicy"), spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicaSet is not Supported"))
	}
	return errs
}

func validateReplicaCounts(status *corev1.ReplicationControllerStatus, path *field.Path) field.ErrorList {
	errs := nonnegative(int64(status.Replicas), path.Child("replicas"))
	errs = append(errs, nonnegative(int64(status.FullyLabeledReplicas), path.Child("fullyLabeledReplicas"))...)
	errs = append(errs, nonnegative(int64(status.ReadyReplicas), path.Child("readyReplicas"))...)
	errs = append(errs, nonnegative(int64(status.AvailableReplicas), path.Child("availableReplicas"))...)
	errs = append(errs, nonnegative(status.ObservedGeneration, path.Child("observedGeneration"))...)
	const more = "cannot be greater than status.replicas"
	if status.FullyLabeledReplicas > status.Replicas {
		errs = append(errs, field.Invalid(path.Child("fullyLabeledReplicas"), status.FullyLabeledReplicas, more))
	}
	if status.ReadyReplicas > status.Replicas {
		errs = append(errs, field.Invalid(path.Child("readyReplicas"), status.ReadyReplicas, more))
	}
	if status.AvailableReplicas > status.Replicas {
		errs = append(errs, field.Invalid(path.Child("availableReplicas"), status.AvailableReplicas, more))
	}
	if status.AvailableReplicas > status.ReadyReplicas {
		errs = append(errs, field.Invalid(path.Child("availableReplicas"), status.AvailableReplicas, "cannot be greater than readyReplicas"))
	}
	return errs
}

func validateLabels(set map[string]string, path *field.Path) field.ErrorList {
	return validation.ValidateLabels(set, path)
}
