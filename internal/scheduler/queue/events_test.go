package queue

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// A pod that needs less or more after a resize is an event, wherever its status says it.
func TestScaleEvents(t *testing.T) {
	cpu := func(n string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(n)} }
	requests := func(n string) *v1.ResourceRequirements { return &v1.ResourceRequirements{Requests: cpu(n)} }
	status := func(n string) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "c", AllocatedResources: cpu(n), Resources: requests(n)}}
	}
	for _, test := range []struct {
		name        string
		old, change func(p *v1.Pod)
		want        framework.ActionType
	}{
		{"container", func(p *v1.Pod) { p.Status.ContainerStatuses = status("4") }, func(p *v1.Pod) { p.Status.ContainerStatuses = status("1") }, framework.UpdatePodScaleDown},
		{
			"sidecar",
			func(p *v1.Pod) {
				p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
				p.Spec.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
				p.Status.InitContainerStatuses = status("4")
			},
			func(p *v1.Pod) { p.Status.InitContainerStatuses = status("1") }, framework.UpdatePodScaleDown,
		},
		{
			"infeasible",
			func(p *v1.Pod) {
				p.Spec.Containers[0].Resources.Requests = cpu("4")
				p.Status.ContainerStatuses = status("1")
			},
			func(p *v1.Pod) {
				p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
			}, framework.UpdatePodScaleDown,
		},
		{
			"resources of the pod",
			func(p *v1.Pod) {
				p.Spec.Resources = requests("1")
				p.Status.Resources, p.Status.AllocatedResources = requests("4"), cpu("1")
			},
			func(p *v1.Pod) { p.Status.Resources = requests("1") }, framework.UpdatePodScaleDown,
		},
		{
			"allocated resources of the pod",
			func(p *v1.Pod) {
				p.Spec.Resources = requests("1")
				p.Status.Resources, p.Status.AllocatedResources = requests("1"), cpu("4")
			},
			func(p *v1.Pod) { p.Status.AllocatedResources = cpu("1") }, framework.UpdatePodScaleDown,
		},
		{"more", func(p *v1.Pod) { p.Status.ContainerStatuses = status("1") }, func(p *v1.Pod) { p.Status.ContainerStatuses = status("4") }, framework.UpdatePodScaleUp},
		{"nothing", func(*v1.Pod) {}, func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: *requests("1")}}}}
			test.old(old)
			pod := old.DeepCopy()
			test.change(pod)
			var got framework.ActionType
			for _, e := range PodEvents(framework.AssignedPod, old, pod) {
				got |= e.Action
			}
			if got != test.want {
				t.Errorf("event: %v, want %v", got, test.want)
			}
			if now, want := framework.NewPodInfo(old).Update(pod).Requests.CPU, framework.NewPodInfo(pod).Requests.CPU; now != want {
				t.Errorf("the cache counts %d, want %d", now, want)
			}
		})
	}
}

// The begin of a deletion is an event of its own, also if one update shows it
// together with other changes: a list after an interrupted watch does.
func TestDeletionEvents(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(p *v1.Pod)
		want   framework.ActionType
	}{
		{"alone", func(*v1.Pod) {}, framework.UpdateOther},
		{"with labels", func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, framework.UpdateOther | framework.UpdatePodLabel},
		{"with a new generation", func(p *v1.Pod) { p.Generation++ }, framework.UpdateOther},
	} {
		old := pod("p", 0)
		now := old.DeepCopy()
		now.DeletionTimestamp = new(metav1.Now())
		test.change(now)
		if got := PodEvents(framework.AssignedPod, old, now); len(got) != 1 || got[0].Action != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
