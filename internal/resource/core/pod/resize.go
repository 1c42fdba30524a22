package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// prepareResize lets the endpoint change only the resources and the resize
// policies of containers, and with the feature gate for it the pod-level
// resources, which are completed as those of a new pod. If the containers are not
// the same ones in the same order, it changes nothing, and validateResize reports
// them.
func prepareResize(r *resource.RequestContext, p, old *corev1.Pod) {
	if len(validateSameContainers(&p.Spec, &old.Spec, nil)) > 0 {
		return
	}
	next := old.DeepCopy()
	next.ResourceVersion = p.ResourceVersion
	copyResources(next.Spec.Containers, p.Spec.Containers)
	copyResources(next.Spec.InitContainers, p.Spec.InitContainers)
	if r.Features.Enabled(feature.InPlacePodLevelResourcesVerticalScaling) {
		next.Spec.Resources = p.Spec.Resources
	}
	keepPodLevelResources(r.Features, &next.Spec, &old.Spec)
	DefaultPodLevelResources(r.Features, &next.Spec)
	*p = *next
	feature.Drop(r.Features, gatedFields(), &p.Spec, &old.Spec)
	raiseGeneration(p, old)
}

func copyResources(to, from []corev1.Container) {
	for i := range to {
		to[i].Resources, to[i].ResizePolicy = from[i].Resources, from[i].ResizePolicy
	}
}

// validateSameContainers refuses containers that a resize adds, removes, renames
// or moves.
func validateSameContainers(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name    string
		is, was []corev1.Container
	}{{"containers", spec.Containers, old.Containers}, {"initContainers", spec.InitContainers, old.InitContainers}} {
		at := path.Child(list.name)
		if len(list.is) != len(list.was) {
			errs = append(errs, field.Forbidden(at, list.name+" may not be added or removed on resize"))
			continue
		}
		for i := range list.is {
			if list.is[i].Name != list.was[i].Name {
				errs = append(errs, field.Forbidden(at.Index(i).Child("name"), list.name+" may not be renamed or reordered on resize"))
			}
		}
	}
	return errs
}

func validateResize(r *resource.RequestContext, p, old *corev1.Pod) field.ErrorList {
	spec, nowhere := field.NewPath("spec"), field.NewPath("")
	if podquery.IsMirror(old) {
		return field.ErrorList{field.Forbidden(nowhere, "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(nowhere, "windows pods cannot be resized")}
	}
	options := TemplateOptions(r, asTemplate(old))
	errs := validateBody(p, options)
	errs = append(errs, validateAnnotationsUpdate(p, old, options)...)
	if moved := validateSameContainers(&p.Spec, &old.Spec, spec); len(moved) > 0 {
		return append(errs, moved...)
	}
	fresh := p.DeepCopy()
	fresh.Status.QOSClass = ""
	if now, was := podquery.QOSClass(fresh), old.Status.QOSClass; was != "" && now != was {
		errs = append(errs, field.Invalid(spec, now, "Pod QOS Class may not change as a result of resizing"))
	}
	if !supportsResize(old) {
		errs = append(errs, field.Forbidden(spec, "Pod running on node without support for resize"))
	}
	if whole := hasPodLevelResources(&p.Spec) || hasPodLevelResources(&old.Spec); whole && !r.Features.Enabled(feature.InPlacePodLevelResourcesVerticalScaling) {
		return append(errs, field.Forbidden(nowhere, "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"))
	}
	errs = append(errs, validatePodLevelResize(p.Spec.Resources, old.Spec.Resources, spec.Child("resources"))...)
	errs = append(errs, validateContainerResizes(&p.Spec, &old.Spec, spec)...)
	if other := withOldResources(&p.Spec, &old.Spec); !resource.Equal(*other, old.Spec) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable\n"+validators.Diff(old.Spec, *other)))
	}
	return errs
}

// supportsResize reports whether the node of a pod can resize containers: such a
// node reports the resources of those that run. A pod of which none runs counts
// as one that can be resized.
func supportsResize(p *corev1.Pod) bool {
	for i := range p.Status.ContainerStatuses {
		if status := &p.Status.ContainerStatuses[i]; status.State.Running != nil {
			return status.Resources != nil
		}
	}
	return true
}

// validatePodLevelResize checks that pod-level resources were not removed.
func validatePodLevelResize(is, was *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	switch {
	case was == nil:
		return nil
	case is == nil:
		return field.ErrorList{field.Forbidden(path, "pod-level resources cannot be removed")}
	}
	return validateResized(is, was, "pod-level resource", path)
}

// validateContainerResizes checks the new resources of each container. An init
// container that runs once cannot restart for a resize.
func validateContainerResizes(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.InitContainers {
		is, was, at := &spec.InitContainers[i], &old.InitContainers[i], path.Child("initContainers").Index(i)
		errs = append(errs, validateResized(&is.Resources, &was.Resources, "resource", at.Child("resources"))...)
		if !podquery.IsSidecar(is) && restartsToResize(was) && !resource.Equal(is.Resources, was.Resources) {
			errs = append(errs, field.Forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
	}
	for i := range spec.Containers {
		at := path.Child("containers").Index(i).Child("resources")
		errs = append(errs, validateResized(&spec.Containers[i].Resources, &old.Containers[i].Resources, "resource", at)...)
	}
	return errs
}

// restartsToResize reports whether a container restarts to get other resources.
func restartsToResize(c *corev1.Container) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
}

// validateResized checks that requests and limits were changed but not
// removed. what is how errors name them.
func validateResized(is, was *corev1.ResourceRequirements, what string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name    string
		is, was corev1.ResourceList
	}{{"requests", is.Requests, was.Requests}, {"limits", is.Limits, was.Limits}} {
		for name := range list.was {
			if _, ok := list.is[name]; !ok {
				errs = append(errs, field.Forbidden(path.Child(list.name), fmt.Sprintf("%s %s cannot be removed", what, list.name)))
				break
			}
		}
	}
	return errs
}

// withOldResources returns the new spec with the cpu and memory of old.
func withOldResources(spec, old *corev1.PodSpec) *corev1.PodSpec {
	out := spec.DeepCopy()
	for i := range out.Containers {
		restoreCPUAndMemory(&out.Containers[i].Resources, &old.Containers[i].Resources)
	}
	for i := range out.InitContainers {
		restoreCPUAndMemory(&out.InitContainers[i].Resources, &old.InitContainers[i].Resources)
	}
	if out.Resources == nil {
		out.Resources = old.Resources // validatePodLevelResize reports it
	} else {
		was := old.Resources
		if was == nil {
			was = &corev1.ResourceRequirements{}
		}
		restoreCPUAndMemory(out.Resources, was)
		if old.Resources == nil && resource.Equal(*out.Resources, *was) {
			out.Resources = nil
		}
	}
	return out
}

func restoreCPUAndMemory(to, from *corev1.ResourceRequirements) {
	for _, list := range []struct {
		to   *corev1.ResourceList
		from corev1.ResourceList
	}{{&to.Requests, from.Requests}, {&to.Limits, from.Limits}} {
		for _, name := range resizeResources() {
			if quantity, ok := list.from[name]; !ok {
				delete(*list.to, name)
			} else if *list.to == nil {
				*list.to = corev1.ResourceList{name: quantity}
			} else {
				(*list.to)[name] = quantity
			}
		}
	}
}
