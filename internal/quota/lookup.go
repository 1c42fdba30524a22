package quota

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/feature"
)

// Lookup has what the usage of an object depends on beside the object. The zero Lookup
// finds no objects.
type Lookup struct {
	// Features are the feature gates; nil means the defaults.
	Features *feature.Set
	// Class returns a DeviceClass, or false.
	Class func(name string) (*resourcev1.DeviceClass, bool)
	// Pod returns a pod, or false.
	Pod func(namespace, name string) (*corev1.Pod, bool)
}

// extendedResource returns the extended resource that devices of a class provide, or "".
func (l Lookup) extendedResource(class string) string {
	if l.Class == nil {
		return ""
	}
	c, ok := l.Class(class)
	if !ok || c.Spec.ExtendedResourceName == nil {
		return ""
	}
	return *c.Spec.ExtendedResourceName
}

// countedByPod returns what quotas count already for the pod of a claim. The scheduler
// makes such a claim for the extended resources that its pod requests (KEP-5004).
func (l Lookup) countedByPod(c *resourcev1.ResourceClaim) corev1.ResourceList {
	owner := metav1.GetControllerOfNoCopy(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" || l.Pod == nil {
		return nil
	}
	pod, ok := l.Pod(c.Namespace, owner.Name)
	if !ok || pod.UID != owner.UID {
		return nil
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != c.Name {
		return nil
	}
	used := corev1.ResourceList{}
	podUsage(used, pod, l.Features)
	return used
}
