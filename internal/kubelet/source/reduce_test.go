package source

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/status"
)

func stopHook(command string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{command}}}
}

// endedPod is a pod that has succeeded, whose containers have arguments of that size.
func endedPod(size int) *v1.Pod {
	text := strings.Repeat("x", size)
	resources := v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
	}
	container := func(name string) v1.Container {
		return v1.Container{
			Name: name, Image: "example.com/" + name + ":1", Args: []string{text}, Env: []v1.EnvVar{{Name: "TEXT", Value: text}}, Resources: resources,
			VolumeMounts:           []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true, SubPath: text}},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			Ports:     []v1.ContainerPort{{Name: "http", ContainerPort: 80}},
			Lifecycle: &v1.Lifecycle{PreStop: stopHook("drain"), PostStart: stopHook(text)},
		}
	}
	sidecar := container("sidecar")
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	terminated := func(name string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "runtime://" + name}}}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "uid", ResourceVersion: "7", Generation: 2,
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"text": text},
		},
		Spec: v1.PodSpec{
			NodeName: "here", RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(5)), Priority: new(int32(7)),
			InitContainers: []v1.Container{container("setup"), sidecar}, Containers: []v1.Container{container("main"), container("other")},
			EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(container("debug"))}},
			Volumes:             []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/" + text}}}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodSucceeded, StartTime: new(metav1.Unix(1, 0)), QOSClass: v1.PodQOSBurstable,
			InitContainerStatuses: []v1.ContainerStatus{terminated("setup"), terminated("sidecar")},
			ContainerStatuses:     []v1.ContainerStatus{terminated("main"), terminated("other")},
		},
	}
}

// The node does not keep what the containers of a large pod were started with once they
// have ended. It keeps other pods whole, also those of which another client says that
// they have ended.
func TestEndedPodsAreReduced(t *testing.T) {
	const large, small = 100_000, 100
	for name, test := range map[string]struct {
		size    int
		change  func(p *v1.Pod)
		reduced bool
	}{
		"large":  {large, func(*v1.Pod) {}, true},
		"failed": {large, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, true},
		"small":  {small, func(*v1.Pod) {}, false},
		"runs":   {large, func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, false},
		"a container runs": {large, func(p *v1.Pod) {
			p.Status.ContainerStatuses[1].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		}, false},
	} {
		before := endedPod(test.size)
		test.change(before)
		obj, err := newReducer().reduce(before)
		if err != nil {
			t.Fatal(err)
		}
		after := obj.(*v1.Pod)
		if !test.reduced {
			if after != before {
				t.Errorf("%s: the pod became %v", name, after)
			}
			continue
		}
		if n := after.Size(); n > 2000 {
			t.Errorf("%s: the node keeps %d bytes of %d", name, n, before.Size())
		}
		for i := range after.Spec.Containers { // another client may have ended the pod, whose containers run
			if c := &after.Spec.Containers[i]; c.Lifecycle == nil || !equality.Semantic.DeepEqual(c.Lifecycle.PreStop, stopHook("drain")) || len(c.Ports) != 1 {
				t.Errorf("%s: the node cannot stop %+v", name, c)
			}
		}
		if after.UID != "uid" || after.ResourceVersion != "7" || after.Labels["app"] != "web" || after.Status.Phase != before.Status.Phase {
			t.Errorf("%s: the node knows the pod as %+v", name, after.ObjectMeta)
		}
	}
}

// The node keeps of mirror pods, and of those that claim to be, that they are there and
// what they show.
func TestMirrorPodsAreReduced(t *testing.T) {
	for hash, kept := range map[string]string{"hash": "hash", strings.Repeat("h", 100_000): strings.Repeat("h", mostOfHash)} {
		before := endedPod(100_000)
		before.Annotations[v1.MirrorPodAnnotationKey] = hash
		before.DeletionTimestamp, before.Finalizers = new(metav1.Unix(1, 0)), []string{"example.com/stays"}
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded} {
			before.Status.Phase = phase
			obj, err := newReducer().reduce(before)
			if err != nil {
				t.Fatal(err)
			}
			after := obj.(*v1.Pod)
			if n := after.Size(); n > 1000 {
				t.Errorf("the node keeps %d bytes of %d", n, before.Size())
			}
			if after.UID != "uid" || after.DeletionTimestamp == nil || after.Annotations[v1.MirrorPodAnnotationKey] != kept || !equality.Semantic.DeepEqual(after.Status, before.Status) {
				t.Errorf("the node knows the mirror pod as %v", after)
			}
			if status.IsReduced(after) {
				t.Errorf("%s: the status of the static pod is not kept", phase)
			}
		}
	}
}

// Of the pods of a namespace that have ended, the node keeps no more than how they ended
// when they are too large, or too many. Those of other namespaces stay, and a pod that is
// gone makes room for others.
func TestEndedPodsOfANamespaceAreBounded(t *testing.T) {
	const many = 1000
	r := newReducer()
	reduced := func(namespace string, number int, change ...func(p *v1.Pod)) *v1.Pod {
		p := endedPod(150)
		p.Namespace, p.UID = namespace, types.UID(fmt.Sprint(namespace, number))
		p.Status.Reason, p.Status.Message = "Evicted", strings.Repeat("m", 2000)
		for _, c := range change {
			c(p)
		}
		obj, err := r.reduce(p)
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*v1.Pod)
	}
	whole, size := 0, 0
	for i := range many {
		p := reduced("one", i)
		if !status.IsReduced(p) {
			whole, size = whole+1, size+p.Size()
			continue
		}
		if n := p.Size(); n > 1500 {
			t.Fatalf("of pod %d, %d bytes are kept: %v", i, n, p)
		}
		if p.Name != "web" || p.Status.Phase != v1.PodSucceeded || p.Status.Reason != "Evicted" || p.Status.StartTime == nil || *p.Spec.TerminationGracePeriodSeconds != 5 {
			t.Fatalf("the node knows pod %d as %+v", i, p)
		}
	}
	if whole == 0 || whole == many || size > mostOfNamespace {
		t.Errorf("%d of %d pods are kept whole, with %d bytes", whole, many, size)
	}
	if status.IsReduced(reduced("two", 0)) {
		t.Error("the pods of one namespace take the room of another")
	}
	if status.IsReduced(reduced("one", 0)) {
		t.Error("a new version of a pod counts twice")
	}
	r.forget("one0")
	r.forget("one1")
	if status.IsReduced(reduced("one", many)) {
		t.Error("pods that are gone keep their room")
	}
	if p := reduced("three", 0, func(p *v1.Pod) {
		for i := range 270 {
			p.Labels[fmt.Sprintf("label-%03d", i)] = strings.Repeat("x", 50)
		}
	}); !status.IsReduced(p) || p.Labels != nil {
		t.Errorf("of a large pod are kept %d bytes", p.Size())
	}
}

// A kubelet that was restarted makes the same status of an ended pod, whether or not it
// has the pod whole.
func TestReducedPodHasTheSameStatus(t *testing.T) {
	for _, mounts := range []int{1, 10_000} {
		whole := endedPod(100_000)
		main := &whole.Spec.Containers[0]
		for i := range mounts - 1 {
			main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: "data", MountPath: fmt.Sprint("/", i)})
		}
		kept := finished(whole)
		if n := len(kept.Spec.Containers[0].VolumeMounts); n > 1000 {
			t.Errorf("%d of %d mounts are kept", n, mounts)
		}
		observed := &cri.Pod{UID: "uid", Sandboxes: []*cri.Sandbox{{ID: "s", IPs: []string{"192.0.2.7"}}}}
		for _, name := range []string{"setup", "sidecar", "main", "debug"} { // the runtime has lost the other one
			observed.Containers = append(observed.Containers, &cri.Container{
				ID: name, Name: name, SandboxID: "s", State: cri.Exited, Image: "example.com/" + name + ":1", RestartCount: 1, Reason: "Completed",
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/host", Readonly: true, RecursiveReadOnly: true}},
			})
		}
		generate := func(p *v1.Pod) v1.PodStatus {
			return status.Generate(status.Input{Pod: p, Previous: p.Status, Observed: observed, Now: time.Unix(9, 0), HostIPs: []string{"192.0.2.1"}, Runtime: "runtime", Ended: true})
		}
		if got, want := generate(kept), generate(whole); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("with %d mounts, the status is %+v, want %+v", mounts, got, want)
		}
	}
}
