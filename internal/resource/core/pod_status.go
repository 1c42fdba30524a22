package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// preparePodStatus keeps from the old pod what a status does not say.
func preparePodStatus(_ *resource.Request, p, old *corev1.Pod) {
	p.DeletionTimestamp = old.DeletionTimestamp
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	if p.Status.HostIP != "" && len(p.Status.HostIPs) == 0 {
		p.Status.HostIPs = []corev1.HostIP{{IP: p.Status.HostIP}}
	}
	if p.Status.PodIP == "" && len(p.Status.PodIPs) > 0 {
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	if p.Status.PodIP != "" && len(p.Status.PodIPs) == 0 {
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
}

func validatePodStatus(_ *resource.Request, p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	if p.Spec.NodeName != old.Spec.NodeName {
		errs = append(errs, field.Forbidden(path.Child("nodeName"), "may not be changed directly"))
	}
	if name := p.Status.NominatedNodeName; name != "" && name != old.Status.NominatedNodeName {
		errs = append(errs, invalid(path.Child("nominatedNodeName"), name, nameIsDNSSubdomain(name))...)
	}
	errs = append(errs, validateQOSFixed(p, old, path)...)
	if old.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, validateNotRestarted(p.Status.ContainerStatuses, old.Status.ContainerStatuses, old, false, path.Child("containerStatuses"))...)
		errs = append(errs, validateNotRestarted(p.Status.InitContainerStatuses, old.Status.InitContainerStatuses, old, true, path.Child("initContainerStatuses"))...)
	}
	errs = append(errs, validatePodIPs(p, path)...)
	return append(errs, validateConditionTypes(p, path.Child("conditions"))...)
}

func validateQOSFixed(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	if old.Status.QOSClass == "" || p.Status.QOSClass == old.Status.QOSClass {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("qosClass"), p.Status.QOSClass, fieldImmutable)}
}

// validateNotRestarted: a container that ended for good does not run again.
func validateNotRestarted(is, was []corev1.ContainerStatus, pod *corev1.Pod, init bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range was {
		ended := was[i].State.Terminated
		if ended == nil || restartsAfter(pod, was[i].Name, ended.ExitCode, init) {
			continue
		}
		for j := range is {
			if is[j].Name == was[i].Name && is[j].State.Terminated == nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
				break
			}
		}
	}
	return errs
}

func restartsAfter(pod *corev1.Pod, name string, exitCode int32, init bool) bool {
	containers := pod.Spec.Containers
	if init {
		containers = pod.Spec.InitContainers
	}
	for i := range containers {
		c := &containers[i]
		if c.Name != name {
			continue
		}
		if len(c.RestartPolicyRules) > 0 {
			return true
		}
		if c.RestartPolicy != nil {
			return *c.RestartPolicy == corev1.ContainerRestartPolicyAlways ||
				*c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure && exitCode != 0
		}
	}
	return exitCode != 0 && pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

func validatePodIPs(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("podIPs")
	seen, families := map[string]bool{}, map[corev1.IPFamily]int{}
	for i, ip := range p.Status.PodIPs {
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Index(i), ip.IP, strictAddresses, []string{ip.IP})...)
		if seen[ip.IP] {
			errs = append(errs, field.Duplicate(at.Index(i), shown(ip)))
		}
		seen[ip.IP] = true
		families[familyOf(ip.IP)]++
	}
	if len(p.Status.PodIPs) > 1 && (families[corev1.IPv4Protocol] != 1 || families[corev1.IPv6Protocol] != 1) {
		errs = append(errs, field.Invalid(at, internal{p.Status.PodIPs}, "may specify no more than one IP for each IP family"))
	}
	return errs
}

func validateConditionTypes(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range p.Status.Conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("observedGeneration"), c.ObservedGeneration, isNegative))
		}
	}
	return errs
}

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

func validatePodResize(_ *resource.Request, p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := ValidatePodSpec(&p.Spec, &p.ObjectMeta, spec, PodTemplateOptions(podAsTemplate(p), podAsTemplate(old)))
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return append(errs, field.Forbidden(field.NewPath(""), "static pods cannot be resized"))
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return append(errs, field.Forbidden(field.NewPath(""), "windows pods cannot be resized"))
	}
	fresh := p.DeepCopy()
	fresh.Status.QOSClass = ""
	if now, was := QOSClass(fresh), old.Status.QOSClass; was != "" && now != was {
		errs = append(errs, field.Invalid(spec, now, "Pod QOS Class may not change as a result of resizing"))
	}
	for i := range p.Spec.Containers {
		errs = append(errs, validateResizedContainer(&p.Spec.Containers[i], &old.Spec.Containers[i], spec.Child("containers").Index(i))...)
	}
	for i := range p.Spec.InitContainers {
		if !isSidecar(&p.Spec.InitContainers[i]) && !equal(p.Spec.InitContainers[i].Resources, old.Spec.InitContainers[i].Resources) {
			errs = append(errs, field.Forbidden(spec.Child("initContainers").Index(i).Child("resources"), "resources for non-sidecar init containers are immutable"))
		}
	}
	return errs
}

// validateResizedContainer: cpu and memory may change, but not go away.
func validateResizedContainer(is, was *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name    string
		is, was corev1.ResourceList
	}{{"requests", is.Resources.Requests, was.Resources.Requests}, {"limits", is.Resources.Limits, was.Resources.Limits}} {
		at := path.Child("resources", list.name)
		for name := range list.was {
			if _, ok := list.is[name]; !ok {
				errs = append(errs, field.Forbidden(at, fmt.Sprintf("resource %s cannot be removed", list.name)))
				break
			}
		}
		for name, quantity := range list.is {
			if before := list.was[name]; !resizeResources[name] && quantity.Cmp(before) != 0 {
				errs = append(errs, field.Forbidden(at.Key(string(name)), "only cpu and memory resources are mutable"))
			}
		}
	}
	return errs
}
