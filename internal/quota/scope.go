package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// Selects reports whether the quota's scopes select the object. A quota
// without scopes selects every object. A quota with scopes selects no object
// of a kind that scopes do not apply to.
func Selects(q *corev1.ResourceQuota, obj any) bool {
	for _, s := range Requirements(q) {
		if !satisfies(s, obj) {
			return false
		}
	}
	return true
}

// Satisfied returns those of some scopes' requirements that the object satisfies.
// An object of a kind that scopes do not apply to satisfies none.
func Satisfied(all []corev1.ScopedResourceSelectorRequirement, obj any) []corev1.ScopedResourceSelectorRequirement {
	var satisfied []corev1.ScopedResourceSelectorRequirement
	for _, s := range all {
		if satisfies(s, obj) {
			satisfied = append(satisfied, s)
		}
	}
	return satisfied
}

func satisfies(s corev1.ScopedResourceSelectorRequirement, obj any) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		return selectsPod(s, o)
	case *corev1.PersistentVolumeClaim:
		return s.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && matches(s, attributesClasses(o)...)
	}
	return false
}

// Scoped reports whether the quota has scopes.
func Scoped(q *corev1.ResourceQuota) bool {
	return len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil && len(q.Spec.ScopeSelector.MatchExpressions) > 0
}

// Requirements returns the quota's scopes as requirements.
func Requirements(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, s := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

func selectsPod(s corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return podquery.QOSClass(pod) == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return podquery.QOSClass(pod) != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossNamespace(pod.Spec.Affinity)
	case corev1.ResourceQuotaScopePriorityClass:
		if pod.Spec.PriorityClassName == "" {
			return matches(s)
		}
		return matches(s, pod.Spec.PriorityClassName)
	}
	return false
}

// matches reports whether one of an object's values satisfies a requirement,
// by the rules of label selectors: NotIn and DoesNotExist are satisfied if
// there is no value.
func matches(s corev1.ScopedResourceSelectorRequirement, have ...string) bool {
	if len(have) == 0 {
		return s.Operator == corev1.ScopeSelectorOpDoesNotExist || s.Operator == corev1.ScopeSelectorOpNotIn
	}
	return slices.ContainsFunc(have, func(v string) bool {
		switch s.Operator {
		case corev1.ScopeSelectorOpExists:
			return true
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(s.Values, v)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(s.Values, v)
		}
		return false
	})
}

// attributesClasses returns the volume attributes classes that a claim
// requests, has, or is changing to.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if c.Spec.VolumeAttributesClassName != nil {
		add(*c.Spec.VolumeAttributesClassName)
	}
	if c.Status.CurrentVolumeAttributesClassName != nil {
		add(*c.Status.CurrentVolumeAttributesClassName)
	}
	if m := c.Status.ModifyVolumeStatus; m != nil {
		add(m.TargetVolumeAttributesClassName)
	}
	return names
}

func crossNamespace(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	collect := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, w := range preferred {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		collect(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		collect(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
