package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// Deployments is the resource deployments.
func Deployments() *resource.Resource {
	doc := appsv1.DeploymentStatus{}.SwaggerDoc()
	return resource.Define(resource.Definition[appsv1.Deployment, *appsv1.Deployment]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "Deployment",
			Plural:     "deployments",
			ShortNames: []string{"deploy"},
			Categories: []string{"all"},
		},
		Undecodable: func(d *appsv1.Deployment) error {
			_, _, err := rollbackTo(d)
			return err
		},
		Default: defaultDeployment,
		// The annotations are part of it, because ReplicaSets get them, too.
		Spec: func(d *appsv1.Deployment) any {
			return struct {
				Spec        appsv1.DeploymentSpec
				Annotations map[string]string
			}{d.Spec, d.Annotations}
		},
		Status: resource.Status[*appsv1.Deployment]{
			Copy: func(d, from *appsv1.Deployment) { d.Status = from.Status },
			Prepare: func(r *resource.RequestContext, o, old *appsv1.Deployment) {
				o.Labels = old.Labels
				keepRollback(o, old)
				feature.Drop(r.Features, deploymentStatusFields(), &o.Status, &old.Status)
			},
			Validate: validateDeploymentStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*appsv1.Deployment]{
			PrepareForCreate: func(r *resource.RequestContext, o *appsv1.Deployment) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, o, old *appsv1.Deployment) {
				pod.DropDisabledTemplateFields(r.Features, &o.Spec.Template, &old.Spec.Template)
			},
			Validate: func(r *resource.RequestContext, o *appsv1.Deployment) field.ErrorList {
				return validateDeployment(r, o, nil)
			},
			ValidateUpdate: validateDeploymentUpdate,
			Warnings: func(_ *resource.RequestContext, o, old *appsv1.Deployment) []string {
				return append(nameWarnings(o, old == nil), templateWarnings(&o.Spec.Template, deploymentTemplate(old))...)
			},
		},
		Table: resource.Table[*appsv1.Deployment]{
			Columns: append(append([]metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Ready", "string", "Number of the pod with ready state"),
				resource.Column("Up-to-date", "string", doc["updatedReplicas"]),
				resource.Column("Available", "string", doc["availableReplicas"]),
				resource.AgeColumn(),
			}, printers.ContainersColumns()...), printers.SelectorColumn(appsv1.DeploymentSpec{}.SwaggerDoc()["selector"])),
			Row: deploymentRow,
		},
		Subresources: []resource.SubresourceDefinition[appsv1.Deployment, *appsv1.Deployment]{{
			Name: "scale",
			Scale: &resource.ScaleDefinition[appsv1.Deployment, *appsv1.Deployment]{
				SpecReplicas:   func(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) },
				StatusReplicas: func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
				Selector:       func(d *appsv1.Deployment) string { return selectorString(d.Spec.Selector) },
				SetReplicas:    func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n },
			},
		}},
	})
}

func defaultDeployment(d *appsv1.Deployment) {
	pod.DefaultTemplate(&d.Spec.Template)
	defaults.Nil(&d.Spec.Replicas, 1)
	defaults.Zero(&d.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		defaults.Nil(&d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		defaults.Nil(&d.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		defaults.Nil(&d.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	defaults.Nil(&d.Spec.RevisionHistoryLimit, 10)
	defaults.Nil(&d.Spec.ProgressDeadlineSeconds, 600)
}

func deploymentRow(d *appsv1.Deployment, now time.Time) []any {
	names, images := printers.Containers(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1)),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), resource.Age(d.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}

// deploymentTemplate returns the template of a Deployment that may be nil.
func deploymentTemplate(d *appsv1.Deployment) *corev1.PodTemplateSpec {
	if d == nil {
		return nil
	}
	return &d.Spec.Template
}
