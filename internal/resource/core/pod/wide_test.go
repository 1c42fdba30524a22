package pod_test

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// wide is about as many elements as fit into a request. A rule that compares each
// element of a list with each of another takes a minute for them.
const wide = 100_000

// TestWideSpecs checks that the rules end for pods with several long lists.
func TestWideSpecs(t *testing.T) {
	for name, test := range map[string]struct {
		widen func(p *corev1.Pod)
		errs  int
	}{
		"one label key often": {func(p *corev1.Pod) {
			p.Labels = map[string]string{"k": "v"}
			keys := make([]string, wide)
			for i := range keys {
				keys[i] = "k"
			}
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone",
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: keys}}
		}, wide - 1}, // once is right
		"many constraints": {func(p *corev1.Pod) {
			for i := range wide {
				p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints,
					corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: strconv.Itoa(i), WhenUnsatisfiable: corev1.DoNotSchedule})
			}
		}, 0},
		"many containers and profiles": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{}
			for i := range 5000 {
				p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+strconv.Itoa(i)] = ""
			}
			for i := range wide {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: strconv.Itoa(i), Image: "i"})
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "{}")
			test.widen(p)
			r := pod.Pods()
			r.Hub().Default(p)
			errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Now: noon, Namespace: "default"}, p)
			if len(errs) != test.errs {
				t.Errorf("%d errors, want %d", len(errs), test.errs)
			}
		})
	}
}

// TestWideStatuses does the same for updates of the status.
func TestWideStatuses(t *testing.T) {
	old := storedPod(t, "{}")
	old.Status.QOSClass = corev1.PodQOSBestEffort
	for i := range wide {
		name := "c" + strconv.Itoa(i)
		ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		old.Spec.Containers = append(old.Spec.Containers, corev1.Container{Name: name, Image: "i"})
		old.Spec.ResourceClaims = append(old.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name})
		old.Spec.Containers[0].Resources.Claims = append(old.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: name})
		old.Status.ContainerStatuses = append(old.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: ended})
	}
	next := old.DeepCopy()
	devices := corev1.ContainerStatus{Name: "c"}
	extended := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}
	for i := wide - 1; i >= 0; i-- {
		name := "c" + strconv.Itoa(i)
		next.Status.ResourceClaimStatuses = append(next.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: name})
		devices.AllocatedResourcesStatus = append(devices.AllocatedResourcesStatus, corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + name)})
		extended.RequestMappings = append(extended.RequestMappings, corev1.ContainerExtendedResourceRequest{ContainerName: name, RequestName: "r"})
	}
	next.Status.ContainerStatuses = append(next.Status.ContainerStatuses, devices)
	next.Status.ExtendedResourceClaimStatus = extended
	r := pod.Pods()
	request := &resource.RequestContext{Now: noon, Namespace: "default"}
	errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), request, next, old)
	if len(errs) != wide { // each mapping names a resource that the container does not request
		t.Errorf("%d errors, want %d", len(errs), wide)
	}
}

// TestWideResizes does the same for resizes.
func TestWideResizes(t *testing.T) {
	old := storedPod(t, "{}")
	for i := range wide {
		old.Spec.Containers = append(old.Spec.Containers, corev1.Container{Name: "c" + strconv.Itoa(i), Image: "i"})
	}
	pod.Pods().Hub().Default(old)
	r := pod.Pods()
	request := &resource.RequestContext{Now: noon, Namespace: "default"}
	if errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("resize"), request, old.DeepCopy(), old); len(errs) > 0 {
		t.Error(errs[:1])
	}
}
