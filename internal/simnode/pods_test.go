package simnode

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// A kubelet that starts again sees the existing pods, and not the pods that
// were deleted while the node was silent.
func TestPodsDeletedWhileSilent(t *testing.T) {
	n := New(Config{Name: "sim-0"})
	none := func(schema.GroupVersionResource, string, fields.Selector) cache.SharedIndexInformer { return nil }
	pods := v1.SchemeGroupVersion.WithResource("pods")
	n.watch(none, nil)(pods, "", fields.Everything())
	n.keep(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	n.watch(none, nil)(v1.SchemeGroupVersion.WithResource("nodes"), "", fields.Everything())
	if n.pod("a") == nil {
		t.Error("the pod is gone after a watch of nodes")
	}
	n.watch(none, nil)(pods, "", fields.Everything())
	if n.pod("a") != nil {
		t.Error("the pod is still there after the kubelet has started again")
	}
}

// The parts that a simulated pod shares with the pod of the API are never
// changed.
func TestSimulatedPod(t *testing.T) {
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/"}}}
	pod := &v1.Pod{Spec: v1.PodSpec{
		DNSPolicy:      v1.DNSClusterFirst,
		InitContainers: []v1.Container{{Name: "plain"}},
		Containers:     []v1.Container{{Name: "probed", LivenessProbe: probe}, {Name: "hooked", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: probe.HTTPGet}}}},
	}}
	before := pod.DeepCopy()
	made := simulated(pod)
	if !equality.Semantic.DeepEqual(pod, before) {
		t.Error("the pod of the API has changed")
	}
	if made.Spec.DNSPolicy != v1.DNSDefault {
		t.Errorf("DNS policy %s", made.Spec.DNSPolicy)
	}
	if &made.Spec.InitContainers[0] != &pod.Spec.InitContainers[0] {
		t.Error("containers without probes and hooks are copied")
	}
	if made.Spec.Containers[0].LivenessProbe.Exec == nil || made.Spec.Containers[1].Lifecycle.PreStop.Exec == nil {
		t.Error("probes and hooks still use the network")
	}
	if late := simulated(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationReadyAfter: "3s"}}, Spec: v1.PodSpec{Containers: []v1.Container{{}}}}); late.Spec.Containers[0].ReadinessProbe == nil {
		t.Error("a pod that is ready late has no probe")
	}
}
