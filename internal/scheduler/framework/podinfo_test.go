package framework

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/feature"
)

// The requests of a pod are those that the library computes of all that it may
// have, also where less is computed.
func TestRequestsMatchTheLibrary(t *testing.T) {
	maybe := func(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }
	list := func(t *rapid.T) v1.ResourceList {
		if maybe(t, "nil") {
			return nil
		}
		l := v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "example.com/device"} {
			if maybe(t, string(name)) {
				l[name] = *resource.NewMilliQuantity(rapid.Int64Range(0, 5000).Draw(t, "amount"), resource.DecimalSI)
			}
		}
		return l
	}
	containers := func(t *rapid.T, prefix string, least int) (made []v1.Container, statuses []v1.ContainerStatus) {
		for i := range rapid.IntRange(least, 2).Draw(t, prefix) {
			c := v1.Container{Name: prefix + string(rune('0'+i)), Resources: v1.ResourceRequirements{Requests: list(t)}}
			if prefix == "init" && maybe(t, "sidecar") {
				c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			}
			made = append(made, c)
			if rapid.IntRange(0, 3).Draw(t, "status") == 0 {
				s := v1.ContainerStatus{Name: c.Name, AllocatedResources: list(t)}
				if maybe(t, "resources") {
					s.Resources = &v1.ResourceRequirements{Requests: list(t)}
				}
				statuses = append(statuses, s)
			}
		}
		return made, statuses
	}
	rapid.Check(t, func(t *rapid.T) {
		pod := &v1.Pod{}
		pod.Spec.Containers, pod.Status.ContainerStatuses = containers(t, "main", 1)
		pod.Spec.InitContainers, pod.Status.InitContainerStatuses = containers(t, "init", 0)
		if maybe(t, "overhead") {
			pod.Spec.Overhead = list(t)
		}
		if maybe(t, "of the pod") {
			pod.Spec.Resources = &v1.ResourceRequirements{Requests: list(t)}
		}
		if rapid.IntRange(0, 3).Draw(t, "status of the pod") == 0 {
			pod.Status.AllocatedResources = list(t)
			pod.Status.Resources = &v1.ResourceRequirements{Requests: list(t)}
		}
		if rapid.IntRange(0, 3).Draw(t, "resize") == 0 {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
		}
		options := resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
		want := ResourcesOf(resourcehelper.PodRequests(pod, options))
		want.Pods = 1
		options.NonMissingContainerRequests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("200Mi")}
		floor := resourcehelper.PodRequests(pod, options)
		got := NewPodInfo(pod)
		if diff := cmp.Diff(want, got.Requests); diff != "" {
			t.Fatalf("requests (-want +got):\n%s", diff)
		}
		if cpu, memory := amount.Milli(*floor.Cpu()), amount.Value(*floor.Memory()); got.NonZeroCPU != cpu || got.NonZeroMemory != memory {
			t.Fatalf("counts for %d millicores and %d bytes, want %d and %d", got.NonZeroCPU, got.NonZeroMemory, cpu, memory)
		}
	})
}

// What a pod as a whole has counts as far as the feature gates have it. The pod stays as
// it is.
func TestVisible(t *testing.T) {
	cpu := func(amount string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}
	}
	pod := &v1.Pod{
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: cpu("100m")}}},
			Resources:  &v1.ResourceRequirements{Requests: cpu("1")},
		},
		Status: v1.PodStatus{AllocatedResources: cpu("2"), Resources: &v1.ResourceRequirements{Requests: cpu("3")}},
	}
	before := pod.DeepCopy()
	for _, test := range []struct {
		gates string
		want  int64 // millicores
	}{
		{"", 3000},
		{"InPlacePodLevelResourcesVerticalScaling=false", 1000},
		{"PodLevelResources=false,PodLevelResourcesFixDefaulting=false,PodLevelResourcesFixKubeletQOSClass=false,InPlacePodLevelResourcesVerticalScaling=false", 100},
	} {
		features, err := feature.Parse(strings.Split(test.gates, ","))
		if err != nil {
			t.Fatal(err)
		}
		if got := NewPodInfo(Visible(pod, features)).Requests.CPU; got != test.want {
			t.Errorf("%q: %d millicores, want %d", test.gates, got, test.want)
		}
	}
	if Visible(pod, nil) != pod {
		t.Error("a pod with nothing to hide is copied")
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the pod has changed (-want +got):\n%s", diff)
	}
}

// BenchmarkNewPodInfo parses a pod with one container that requests what pods
// usually do.
func BenchmarkNewPodInfo(b *testing.B) {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("500Mi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}}}}
	b.ReportAllocs()
	for b.Loop() {
		NewPodInfo(pod)
	}
}
