package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Ephemeral containers are added to running pods for debugging. They have no
// resources, ports or probes, and cannot be removed.

func (r *containerRules) validateEphemeralContainers(path *field.Path) field.ErrorList {
	if len(r.spec.EphemeralContainers) == 0 {
		return nil
	}
	var errs field.ErrorList
	names, targets := map[string]bool{}, map[string]bool{}
	for i := range r.spec.Containers {
		names[r.spec.Containers[i].Name], targets[r.spec.Containers[i].Name] = true, true
	}
	for i := range r.spec.InitContainers {
		names[r.spec.InitContainers[i].Name], targets[r.spec.InitContainers[i].Name] = true, true
	}
	for i := range r.spec.EphemeralContainers {
		ephemeral, at := &r.spec.EphemeralContainers[i], path.Index(i)
		c := asContainer(ephemeral)
		errs = append(errs, r.validateContainer(c, at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		if target := ephemeral.TargetContainerName; target != "" && !targets[target] {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), target))
		}
		for _, part := range []struct {
			name string
			set  bool
		}{
			{"ports", len(c.Ports) > 0},
			{"livenessProbe", c.LivenessProbe != nil},
			{"readinessProbe", c.ReadinessProbe != nil},
			{"startupProbe", c.StartupProbe != nil},
			{"lifecycle", c.Lifecycle != nil},
			{"resources", len(c.Resources.Limits)+len(c.Resources.Requests)+len(c.Resources.Claims) > 0},
			{"resizePolicy", len(c.ResizePolicy) > 0},
			{"restartPolicy", c.RestartPolicy != nil},
			{"restartPolicyRules", len(c.RestartPolicyRules) > 0},
		} {
			if part.set {
				errs = append(errs, field.Forbidden(at.Child(part.name), "cannot be set for an Ephemeral Container"))
			}
		}
		for j, mount := range c.VolumeMounts {
			if mount.SubPath != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPath"), "cannot be set for an Ephemeral Container"))
			}
			if mount.SubPathExpr != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPathExpr"), "cannot be set for an Ephemeral Container"))
			}
		}
	}
	return errs
}

// prepareEphemeralContainers lets the endpoint change only the ephemeral
// containers.
func prepareEphemeralContainers(r *resource.RequestContext, p, old *corev1.Pod) {
	next := old.DeepCopy()
	next.ResourceVersion = p.ResourceVersion
	next.Spec.EphemeralContainers = p.Spec.EphemeralContainers
	*p = *next
	feature.Drop(r.Features, gatedFields(), &p.Spec, &old.Spec)
	raiseGeneration(p, old)
}

func validateEphemeralContainersUpdate(r *resource.RequestContext, p, old *corev1.Pod) field.ErrorList {
	if podquery.IsMirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	path := field.NewPath("spec", "ephemeralContainers")
	options := TemplateOptions(r, asTemplate(old))
	errs := validateBody(p, options)
	errs = append(errs, validateAnnotationsUpdate(p, old, options)...)
	now := map[string]*corev1.EphemeralContainer{}
	for i := range p.Spec.EphemeralContainers {
		now[p.Spec.EphemeralContainers[i].Name] = &p.Spec.EphemeralContainers[i]
	}
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		is, ok := now[was.Name]
		if !ok {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
			continue
		}
		if !resource.Equal(was, is) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%s", was.Name, validators.Diff(*was, *is))))
		}
	}
	return errs
}

func raiseGeneration(p, old *corev1.Pod) {
	if !resource.Equal(p.Spec, old.Spec) {
		p.Generation = old.Generation + 1
	}
}
