package core

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// ReplicationControllers is the resource replicationcontrollers.
func ReplicationControllers() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ReplicationController, *corev1.ReplicationController]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "ReplicationController",
			Plural:     "replicationcontrollers",
			ShortNames: []string{"rc"},
			Categories: []string{"all"},
		},
		Storage: resource.Storage{Path: "controllers"},
		Default: defaultReplicationController,
		Spec:    func(rc *corev1.ReplicationController) any { return &rc.Spec },
		Status: resource.Status[*corev1.ReplicationController]{
			Copy: func(rc, from *corev1.ReplicationController) { rc.Status = from.Status },
			Validate: func(_ *resource.RequestContext, rc, _ *corev1.ReplicationController) field.ErrorList {
				return validateReplicaCounts(&rc.Status, field.NewPath("status"))
			},
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.ReplicationController]{
			PrepareForCreate: func(r *resource.RequestContext, rc *corev1.ReplicationController) {
				pod.DropDisabledTemplateFields(r.Features, rc.Spec.Template, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, rc, old *corev1.ReplicationController) {
				pod.DropDisabledTemplateFields(r.Features, rc.Spec.Template, old.Spec.Template)
			},
			Validate: func(r *resource.RequestContext, rc *corev1.ReplicationController) field.ErrorList {
				return validateReplicationController(r, rc, nil)
			},
			ValidateUpdate: func(r *resource.RequestContext, rc, old *corev1.ReplicationController) field.ErrorList {
				return validateReplicationController(r, rc, old)
			},
			ValidateName: pod.ValidateName,
			Warnings: func(_ *resource.RequestContext, rc, old *corev1.ReplicationController) []string {
				var warnings []string
				var oldTemplate *corev1.PodTemplateSpec
				if old == nil {
					warnings = validators.PodNameWarnings(rc.Name)
				} else {
					oldTemplate = old.Spec.Template
				}
				return append(warnings, pod.TemplateWarnings(rc.Spec.Template, oldTemplate, field.NewPath("spec", "template"))...)
			},
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.ReplicationController]{DefaultPropagation: metav1.DeletePropagationOrphan},
		Table: resource.Table[*corev1.ReplicationController]{
			Columns: append(append([]metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Desired", "integer", corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"]),
				resource.Column("Current", "integer", corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"]),
				resource.Column("Ready", "integer", corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"]),
				resource.AgeColumn(),
			}, printers.ContainersColumns()...), printers.SelectorColumn(corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"])),
			Row: replicationControllerRow,
		},
		FieldSelectors: resource.FieldSelectors[*corev1.ReplicationController]{
			SelectableFields: func(rc *corev1.ReplicationController) fields.Set {
				return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
			},
			Fields: []string{"status.replicas"},
		},
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

// defaultReplicationController takes the selector and the labels from the
// template's labels.
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
		pod.DefaultTemplate(rc.Spec.Template)
	}
	defaults.Nil(&rc.Spec.Replicas, 1)
}

func replicationControllerRow(rc *corev1.ReplicationController, now time.Time) []any {
	var containers []corev1.Container
	if rc.Spec.Template != nil {
		containers = rc.Spec.Template.Spec.Containers
	}
	names, images := printers.Containers(containers)
	return []any{
		rc.Name, int64(ptr.Deref(rc.Spec.Replicas, 1)), int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas),
		resource.Age(rc.CreationTimestamp, now), names, images, labels.FormatLabels(rc.Spec.Selector),
	}
}

func validateReplicationController(r *resource.RequestContext, rc, old *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	spec := &rc.Spec
	errs := validators.Nonnegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	errs = append(errs, validators.Nonnegative(path.Child("replicas"), int64(ptr.Deref(spec.Replicas, 0)))...)
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
	errs = append(errs, pod.ValidateTemplate(spec.Template, template, pod.TemplateOptions(r, oldTemplate))...)
	return append(errs, validateReplicatedTemplate(&spec.Template.Spec, template.Child("spec"))...)
}

// validateReplicatedTemplate refuses templates whose pods end by themselves,
// because a new pod would replace each at once.
func validateReplicatedTemplate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("restartPolicy"), spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported"))
	}
	return errs
}

func validateReplicaCounts(status *corev1.ReplicationControllerStatus, path *field.Path) field.ErrorList {
	errs := validators.Nonnegative(path.Child("replicas"), int64(status.Replicas))
	errs = append(errs, validators.Nonnegative(path.Child("fullyLabeledReplicas"), int64(status.FullyLabeledReplicas))...)
	errs = append(errs, validators.Nonnegative(path.Child("readyReplicas"), int64(status.ReadyReplicas))...)
	errs = append(errs, validators.Nonnegative(path.Child("availableReplicas"), int64(status.AvailableReplicas))...)
	errs = append(errs, validators.Nonnegative(path.Child("observedGeneration"), status.ObservedGeneration)...)
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
