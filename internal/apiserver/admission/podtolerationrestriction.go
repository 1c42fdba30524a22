package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/podquery"
	corepod "github.com/coracle-io/coracle/internal/resource/core/pod"
)

// The annotations of a namespace with the tolerations that its pods get and may
// have, as JSON lists.
const (
	defaultTolerationsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// podTolerationRestriction adds the default tolerations of the namespace to
// pods, and refuses tolerations that the namespace does not allow. Pods that
// request memory or CPU tolerate nodes under memory pressure. The configuration
// has the lists of namespaces without the annotations.
type podTolerationRestriction struct {
	onWrite
	namespaces fresh[*corev1.Namespace]
	configured tolerationConfiguration
}

// tolerationConfiguration is the Configuration of the plugin in version
// podtolerationrestriction.admission.k8s.io/v1alpha1.
type tolerationConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Default         []corev1.Toleration `json:"default,omitempty"`
	Whitelist       []corev1.Toleration `json:"whitelist,omitempty"`
}

func newPodTolerationRestriction(c *Config) admission.Interface {
	return podTolerationRestriction{
		namespaces: freshOf[*corev1.Namespace](c, objects.Namespaces),
		configured: c.Configured["PodTolerationRestriction"].tolerations,
	}
}

// readTolerations reads and validates the configuration of the plugin.
func readTolerations(raw []byte) (tolerationConfiguration, error) {
	var c tolerationConfiguration
	version := schema.GroupVersion{Group: "podtolerationrestriction.admission.k8s.io", Version: "v1alpha1"}
	if err := decodeTyped(raw, version, &c.TypeMeta, &c); err != nil {
		return c, err
	}
	path := field.NewPath("podtolerationrestriction")
	errs := append(corepod.ValidateTolerations(c.Default, path.Child("default"), false), corepod.ValidateTolerations(c.Whitelist, path.Child("whitelist"), false)...)
	if len(errs) > 0 {
		return c, fmt.Errorf("invalid config: %v", errs)
	}
	return c, nil
}

func (p podTolerationRestriction) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	var further []corev1.Toleration
	if a.GetOperation() == admission.Create {
		own, has, err := p.tolerations(ctx, a, defaultTolerationsAnnotation)
		if err != nil {
			return err
		}
		if further = own; !has {
			further = slices.Clone(p.configured.Default)
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
	allowed, has, err := p.tolerations(ctx, a, allowedTolerationsAnnotation)
	if err != nil {
		return err
	}
	if !has {
		allowed = p.configured.Whitelist
	}
	if len(allowed) == 0 {
		return nil
	}
	for _, t := range pod.Spec.Tolerations {
		if !slices.ContainsFunc(allowed, func(in corev1.Toleration) bool { return containsToleration(in, t) }) {
			return refused(a, "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist")
		}
	}
	return nil
}

// tolerations returns the list in an annotation of the namespace. has reports
// whether there is one; it may be empty.
func (p podTolerationRestriction) tolerations(ctx context.Context, a admission.Attributes, annotation string) (list []corev1.Toleration, has bool, err error) {
	ns, err := namespaceOf(ctx, a, p.namespaces)
	if err != nil {
		return nil, false, err
	}
	text, has := ns.Annotations[annotation]
	if text == "" {
		return nil, has, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, fmt.Errorf("the annotation %s of namespace %s: %w", annotation, ns.Name, err)
	}
	return list, true, nil
}
