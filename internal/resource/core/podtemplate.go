package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
)

// PodTemplates is the resource podtemplates.
func PodTemplates() *resource.Resource {
	return resource.Define(resource.Definition[corev1.PodTemplate, *corev1.PodTemplate]{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "PodTemplate",
		Plural:              "podtemplates",
		ReturnDeletedObject: true,
		Default:             func(t *corev1.PodTemplate) { DefaultPodTemplateSpec(&t.Template) },
		Spec:                func(t *corev1.PodTemplate) any { return &t.Template },
		PrepareForCreate: func(r *resource.Request, t *corev1.PodTemplate) {
			DropDisabledPodTemplateFields(r.Features, &t.Template, nil)
		},
		PrepareForUpdate: func(r *resource.Request, t, old *corev1.PodTemplate) {
			DropDisabledPodTemplateFields(r.Features, &t.Template, &old.Template)
		},
		Validate: func(r *resource.Request, t *corev1.PodTemplate) field.ErrorList {
			return ValidatePodTemplateSpec(&t.Template, field.NewPath("template"), PodTemplateOptions(r.Features, nil))
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(r *resource.Request, t, old *corev1.PodTemplate) field.ErrorList {
			return ValidatePodTemplateSpec(&t.Template, field.NewPath("template"), PodTemplateOptions(r.Features, &old.Template))
		},
		ValidateName: PodName,
		Warnings: func(_ *resource.Request, t, old *corev1.PodTemplate) []string {
			var oldTemplate *corev1.PodTemplateSpec
			if old != nil {
				oldTemplate = &old.Template
			}
			return PodTemplateWarnings(&t.Template, oldTemplate, field.NewPath("template"))
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Containers", "string", "Names of each container in the template."),
			resource.Column("Images", "string", "Images referenced by each container in the template."),
			resource.Column("Pod Labels", "string", "The labels for the pod template."),
		},
		Row: func(t *corev1.PodTemplate, _ time.Time) []any {
			names, images := cell.Containers(t.Template.Spec.Containers)
			return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
		},
	})
}
