package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/resource"
)

// preparePodResize lets the endpoint change the resources of containers and
// how they are resized, and nothing else.
func preparePodResize(_ *resource.Request, p, old *corev1.Pod) {
	next := old.DeepCopy()
	next.ResourceVersion = p.ResourceVersion
	copyResources(next.Spec.Containers, p.Spec.Containers)
	copyResources(next.Spec.InitContainers, p.Spec.InitContainers)
	next.Spec.Resources = p.Spec.Resources
	*p = *next
	raisePodGeneration(p, old)
}

func copyResources(to, from []corev1.Container) {
	for i := range to {
		for j := range from {
			if from[j].Name == to[i].Name {
				to[i].Resources, to[i].ResizePolicy = from[j].Resources, from[j].ResizePolicy
			}
		}
	}
}

func validatePodResize(r *resource.Request, p, old *corev1.Pod) field.ErrorList {
	spec, nowhere := field.NewPath("spec"), field.NewPath("")
	if podutil.IsMirror(old) {
		return field.ErrorList{field.Forbidden(nowhere, "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(nowhere, "windows pods cannot be resized")}
	}
	options := PodTemplateOptions(r.Features, podAsTemplate(old))
	errs := validatePodBody(p, options)
	errs = append(errs, validatePodAnnotationsUpdate(p, old, options)...)
	fresh := p.DeepCopy()
	fresh.Status.QOSClass = ""
	if now, was := podutil.QOSClass(fresh), old.Status.QOSClass; was != "" && now != was {
		errs = append(errs, field.Invalid(spec, now, "Pod QOS Class may not change as a result of resizing"))
	}
	for i := range p.Spec.Containers {
		at := spec.Child("containers").Index(i).Child("resources")
		errs = append(errs, validateResized(&p.Spec.Containers[i].Resources, &old.Spec.Containers[i].Resources, at)...)
	}
	for i := range p.Spec.InitContainers {
		is, was := &p.Spec.InitContainers[i], &old.Spec.InitContainers[i]
		at := spec.Child("initContainers").Index(i).Child("resources")
		switch {
		case equal(is.Resources, was.Resources):
		case podutil.IsSidecar(is):
			errs = append(errs, validateResized(&is.Resources, &was.Resources, at)...)
		default:
			errs = append(errs, field.Forbidden(at, "resources for non-sidecar init containers are immutable"))
		}
	}
	if other := withResources(&p.Spec, &old.Spec); !equal(*other, old.Spec) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable\n"+changes(old.Spec, *other)))
	}
	return errs
}

// validateResized: requests and limits may change, but not go away.
func validateResized(is, was *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name    string
		is, was corev1.ResourceList
	}{{"requests", is.Requests, was.Requests}, {"limits", is.Limits, was.Limits}} {
		for name := range list.was {
			if _, ok := list.is[name]; !ok {
				errs = append(errs, field.Forbidden(path.Child(list.name), fmt.Sprintf("resource %s cannot be removed", list.name)))
				break
			}
		}
	}
	return errs
}

// withResources is the new spec with the cpu and memory of old.
func withResources(spec, old *corev1.PodSpec) *corev1.PodSpec {
	out := spec.DeepCopy()
	for i := range out.Containers {
		putBack(&out.Containers[i].Resources, &old.Containers[i].Resources)
	}
	for i := range out.InitContainers {
		putBack(&out.InitContainers[i].Resources, &old.InitContainers[i].Resources)
	}
	if out.Resources != nil && old.Resources != nil {
		putBack(out.Resources, old.Resources)
	}
	return out
}

func putBack(to, from *corev1.ResourceRequirements) {
	for _, list := range []struct {
		to   *corev1.ResourceList
		from corev1.ResourceList
	}{{&to.Requests, from.Requests}, {&to.Limits, from.Limits}} {
		for name := range resizeResources {
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
