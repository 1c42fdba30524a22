package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/podquery"
)

// The annotations of a namespace with the tolerations that its pods get and may
// have, as JSON lists.
const (
	defaultTolerationsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// podTolerationRestriction adds the default tolerations of the namespace to
// pods, and refuses tolerations that the namespace does not allow. Pods that
// request memory or CPU tolerate nodes under memory pressure.
type podTolerationRestriction struct {
	onWrite
	namespaces objects.Reader[*corev1.Namespace]
	refresh    func(context.Context) error
}

func newPodTolerationRestriction(c *Config) admission.Interface {
	return podTolerationRestriction{namespaces: objects.Of[*corev1.Namespace](c.Objects, objects.Namespaces), refresh: c.Refresh}
}

func (p podTolerationRestriction) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	var further []corev1.Toleration
	if a.GetOperation() == admission.Create {
		var err error
		if further, err = p.tolerations(ctx, a, defaultTolerationsAnnotation); err != nil {
			return err
		}
	}
	if podquery.QOSClass(pod) != corev1.PodQOSBestEffort {
		further = append(further, corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	if len(further) > 0 {
		pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, further)
	}
	return nil
}

func (p podTolerationRestriction) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") || len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	allowed, err := p.tolerations(ctx, a, allowedTolerationsAnnotation)
	if err != nil || len(allowed) == 0 {
		return err
	}
	for _, t := range pod.Spec.Tolerations {
		if !slices.ContainsFunc(allowed, func(in corev1.Toleration) bool { return containsToleration(in, t) }) {
			return refused(a, "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist")
		}
	}
	return nil
}

// tolerations returns the list in an annotation of the namespace.
func (p podTolerationRestriction) tolerations(ctx context.Context, a admission.Attributes, annotation string) ([]corev1.Toleration, error) {
	ns, err := namespaceOf(ctx, a, p.namespaces, p.refresh)
	if err != nil || ns.Annotations[annotation] == "" {
		return nil, err
	}
	var list []corev1.Toleration
	if err := json.Unmarshal([]byte(ns.Annotations[annotation]), &list); err != nil {
		return nil, fmt.Errorf("the annotation %s of namespace %s: %w", annotation, ns.Name, err)
	}
	return list, nil
}
