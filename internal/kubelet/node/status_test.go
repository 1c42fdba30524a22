package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/feature"
)

func TestTransitions(t *testing.T) {
	fresh := Status(Facts{NotReady: []string{"starting"}, Now: time.Unix(1, 0)}, &v1.NodeStatus{})
	ready := Status(Facts{Now: time.Unix(2, 0)}, &fresh)
	short := Status(Facts{MemoryPressure: true, DiskPressure: true, PIDPressure: true, Now: time.Unix(3, 0)}, &ready)
	down := Status(Facts{NotReady: []string{"down"}, Now: time.Unix(4, 0)}, &short)
	for _, test := range []struct {
		before, after *v1.NodeStatus
		want          string
	}{
		{&v1.NodeStatus{}, &fresh, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID"},
		{&fresh, &ready, "NodeReady"},
		{&ready, &ready, ""},
		{&ready, &short, "NodeHasInsufficientMemory NodeHasDiskPressure NodeHasInsufficientPID"},
		{&short, &down, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID NodeNotReady"},
	} {
		if got := strings.Join(transitions(test.before, test.after), " "); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// A node declares what it does itself, whatever was declared before, and nothing that is
// off.
func TestDeclaredFeatures(t *testing.T) {
	for off, want := range map[string][]string{
		"": {"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"},
		"InPlacePodLevelResourcesVerticalScaling=false": {"ExtendWebSocketsToKubelet", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"},
		"UserNamespacesHostNetworkSupport=true":         {"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"},
		"ExtendWebSocketsToKubelet=false":               {"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"},
	} {
		gates, err := feature.Parse([]string{off})
		if err != nil {
			t.Fatal(err)
		}
		if got := Status(Facts{Gates: gates, Features: &runtimeapi.RuntimeFeatures{UserNamespacesHostNetwork: true}}, &v1.NodeStatus{DeclaredFeatures: []string{"Another"}}).DeclaredFeatures; !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", off, got, want)
		}
		if got := Status(Facts{Gates: gates}, &v1.NodeStatus{}).DeclaredFeatures; slices.Contains(got, "UserNamespacesHostNetworkSupport") {
			t.Errorf("%q: %v, though the runtime does not have all of it", off, got)
		}
	}
}

func TestUserNamespaceOfTheKubelet(t *testing.T) {
	for uidMap, want := range map[string]bool{
		"": false, "         0          0 4294967295": false, "0 1000 1\n1 100000 65536": true, "0 100000 65536": true, "0 0 65536": true,
	} {
		if got := mapsUsers(uidMap); got != want {
			t.Errorf("%q: in a user namespace %t, want %t", uidMap, got, want)
		}
	}
	info := v1.NodeSystemInfo{RunningInUserNamespace: new(true)}
	if got := Status(Facts{Info: info}, &v1.NodeStatus{}).NodeInfo.RunningInUserNamespace; got == nil || !*got {
		t.Errorf("the status has %v", got)
	}
	off, err := feature.Parse([]string{"KubeletInUserNamespace=false"})
	if err != nil {
		t.Fatal(err)
	}
	if got := Status(Facts{Info: info, Gates: off}, &v1.NodeStatus{}).NodeInfo.RunningInUserNamespace; got != nil {
		t.Errorf("the status has %v though the feature is off", *got)
	}
}

// The runtime may list its handlers in any order.
func TestRuntimeHandlersAreSorted(t *testing.T) {
	var names []string
	for _, h := range Status(Facts{Handlers: []*runtimeapi.RuntimeHandler{{Name: "runc"}, {Name: ""}, {Name: "kata"}}}, &v1.NodeStatus{}).RuntimeHandlers {
		names = append(names, h.Name)
	}
	if want := []string{"", "kata", "runc"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

func TestExtendedResourcesCanBeAllocated(t *testing.T) {
	list := func(words ...string) v1.ResourceList {
		out := v1.ResourceList{}
		for i := 0; i < len(words); i += 2 {
			out[v1.ResourceName(words[i])] = resource.MustParse(words[i+1])
		}
		return out
	}
	f := Facts{Capacity: list("cpu", "2"), Allocatable: list("cpu", "1"), MaxPods: 9}
	got := Status(f, &v1.NodeStatus{
		Capacity:    list("cpu", "3", "example.com/dongle", "4"),
		Allocatable: list("cpu", "3", "example.com/gone", "5"),
	})
	if want := list("cpu", "2", "pods", "9", "example.com/dongle", "4"); !equality.Semantic.DeepEqual(got.Capacity, want) {
		t.Errorf("capacity: %v", got.Capacity)
	}
	if want := list("cpu", "1", "pods", "9", "example.com/dongle", "4"); !equality.Semantic.DeepEqual(got.Allocatable, want) {
		t.Errorf("allocatable: %v", got.Allocatable)
	}
}

func TestPodsPerCoreLimitsPods(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}
	for perCore, want := range map[int32]int32{0: 110, 10: 40, 100: 110} {
		if got := maxPods(&kubeletconfig.KubeletConfiguration{MaxPods: 110, PodsPerCore: perCore}, capacity); got != want {
			t.Errorf("%d pods on each of 4 cores: %d pods, want %d", perCore, got, want)
		}
	}
}

// A node shows its largest images, each with at most five names, digests first.
func TestImagesOfANode(t *testing.T) {
	many := &runtimeapi.Image{Id: "many", Size: 3, RepoDigests: []string{"a@sha256:1", "b@sha256:1"}, RepoTags: []string{"a:1", "a:2", "b:1", "b:2"}}
	list := []*runtimeapi.Image{
		{Id: "small", Size: 1, RepoTags: []string{"small:1"}}, many, {Id: "unnamed", Size: 2}, {Id: "large", Size: 9, RepoTags: []string{"large:1"}},
	}
	for limit, want := range map[int]string{
		-1: "large:1 9, a@sha256:1 b@sha256:1 a:1 a:2 b:1 3, small:1 1",
		50: "large:1 9, a@sha256:1 b@sha256:1 a:1 a:2 b:1 3, small:1 1",
		2:  "large:1 9, a@sha256:1 b@sha256:1 a:1 a:2 b:1 3",
		1:  "large:1 9",
		0:  "",
	} {
		var got []string
		for _, image := range images(list, limit) {
			got = append(got, fmt.Sprint(strings.Join(image.Names, " "), " ", image.SizeBytes))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("at most %d: %s, want %s", limit, text, want)
		}
	}
	if list[0].GetId() != "small" || len(many.GetRepoDigests()) != 2 {
		t.Error("the runtime's list has changed")
	}
}
