package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// PodTemplates is the resource podtemplates.
func PodTemplates() *resource.Resource {
	return resource.Define(resource.Definition[corev1.PodTemplate, *corev1.PodTemplate]{
		GroupVersion:         corev1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "PodTemplate", Plural: "podtemplates"},
		Default:              func(t *corev1.PodTemplate) { pod.DefaultTemplate(&t.Template) },
		Spec:                 func(t *corev1.PodTemplate) any { return &t.Template },
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.PodTemplate]{
			PrepareForCreate: func(r *resource.RequestContext, t *corev1.PodTemplate) {
				pod.DropDisabledTemplateFields(r.Features, &t.Template, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, t, old *corev1.PodTemplate) {
				pod.DropDisabledTemplateFields(r.Features, &t.Template, &old.Template)
			},
			Validate: func(r *resource.RequestContext, t *corev1.PodTemplate) field.ErrorList {
				return pod.ValidateTemplate(&t.Template, field.NewPath("template"), pod.TemplateOptions(r, nil))
			},
			ValidateUpdate: func(r *resource.RequestContext, t, old *corev1.PodTemplate) field.ErrorList {
				return pod.ValidateTemplate(&t.Template, field.NewPath("template"), pod.TemplateOptions(r, &old.Template))
			},
			ValidateName: pod.ValidateName,
			Warnings: func(_ *resource.RequestContext, t, old *corev1.PodTemplate) []string {
				var oldTemplate *corev1.PodTemplateSpec
				if old != nil {
					oldTemplate = &old.Template
				}
				return pod.TemplateWarnings(&t.Template, oldTemplate, field.NewPath("template"))
			},
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.PodTemplate]{ReturnDeletedObject: true},
		Table: resource.Table[*corev1.PodTemplate]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Containers", "string", "Names of each container in the template."),
				resource.Column("Images", "string", "Images referenced by each container in the template."),
				resource.Column("Pod Labels", "string", "The labels for the pod template."),
			},
			Row: func(t *corev1.PodTemplate, _ time.Time) []any {
				names, images := printers.Containers(t.Template.Spec.Containers)
				return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
			},
		},
	})
}
