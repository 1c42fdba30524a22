package apps

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// DaemonSets is the resource daemonsets.
func DaemonSets() *resource.Resource {
	doc := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return resource.Define(resource.Definition[appsv1.DaemonSet, *appsv1.DaemonSet]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "DaemonSet", Plural: "daemonsets", ShortNames: []string{"ds"}, Categories: []string{"all"}},
		Undecodable: func(d *appsv1.DaemonSet) error {
			_, err := templateGeneration(d)
			return err
		},
		Default: defaultDaemonSet,
		Spec:    func(d *appsv1.DaemonSet) any { return d.Spec },
		Status: resource.Status[*appsv1.DaemonSet]{
			Copy: func(d, from *appsv1.DaemonSet) { d.Status = from.Status },
			Prepare: func(_ *resource.RequestContext, d, old *appsv1.DaemonSet) {
				keepTemplateGeneration(d, old)
			},
			Validate: validateDaemonSetStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*appsv1.DaemonSet]{
			PrepareForCreate: func(r *resource.RequestContext, o *appsv1.DaemonSet) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, nil)
				setTemplateGeneration(o, 1)
			},
			PrepareForUpdate: func(r *resource.RequestContext, o, old *appsv1.DaemonSet) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, &old.Spec.Template)
				countTemplate(o, old)
			},
			Validate: func(r *resource.RequestContext, o *appsv1.DaemonSet) field.ErrorList {
				return validateDaemonSet(r, o, nil)
			},
			ValidateUpdate: validateDaemonSetUpdate,
			Warnings: func(_ *resource.RequestContext, o, old *appsv1.DaemonSet) []string {
				return templateWarnings(&o.Spec.Template, daemonSetTemplate(old))
			},
		},
		Table: resource.Table[*appsv1.DaemonSet]{
			Columns: append(append([]metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Desired", "integer", doc["desiredNumberScheduled"]),
				resource.Column("Current", "integer", doc["currentNumberScheduled"]),
				resource.Column("Ready", "integer", doc["numberReady"]),
				resource.Column("Up-to-date", "integer", doc["updatedNumberScheduled"]),
				resource.Column("Available", "integer", doc["numberAvailable"]),
				resource.Column("Node Selector", "string", "Labels that a node must have to run the daemon's pod."),
				resource.AgeColumn(),
			}, printers.ContainersColumns()...), printers.SelectorColumn(appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"])),
			Row: daemonSetRow,
		},
	})
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	pod.DefaultTemplate(&d.Spec.Template)
	defaults.Zero(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		defaults.Nil(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		defaults.Nil(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		defaults.Nil(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaults.Nil(&d.Spec.RevisionHistoryLimit, 10)
}

func daemonSetRow(d *appsv1.DaemonSet, now time.Time) []any {
	names, images := printers.Containers(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, int64(d.Status.DesiredNumberScheduled), int64(d.Status.CurrentNumberScheduled),
		int64(d.Status.NumberReady), int64(d.Status.UpdatedNumberScheduled), int64(d.Status.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), resource.Age(d.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}

// daemonSetTemplate returns the template of a DaemonSet that may be nil.
func daemonSetTemplate(d *appsv1.DaemonSet) *corev1.PodTemplateSpec {
	if d == nil {
		return nil
	}
	return &d.Spec.Template
}
