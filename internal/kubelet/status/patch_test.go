package status

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// starting and started are statuses of one pod, in the order of its life.
func starting() v1.PodStatus {
	since := metav1.Unix(1e9, 0)
	return v1.PodStatus{
		Phase: v1.PodPending, QOSClass: v1.PodQOSBurstable, StartTime: &since, ObservedGeneration: 1,
		HostIP: "10.1.0.1", HostIPs: []v1.HostIP{{IP: "10.1.0.1"}},
		Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: since, ObservedGeneration: 1},
			{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: `containers with unready status: [main]`},
		},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", Image: "web:1", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		}},
	}
}

func started() v1.PodStatus {
	s := starting()
	s.Phase, s.PodIP, s.PodIPs = v1.PodRunning, "10.0.0.7", []v1.PodIP{{IP: "10.0.0.7"}}
	s.Conditions[1] = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1e9+2, 0))}
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceMemory: resource.MustParse("16Mi")}
	yes := true
	s.ContainerStatuses[0] = v1.ContainerStatus{
		Name: "main", Image: "web:1", ImageID: "sha256:1", ContainerID: "containerd://1", Ready: true, Started: &yes, RestartCount: 2,
		State:                v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Unix(1e9+1, 0)}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Signal: 9, Message: "<\x00>"}},
		AllocatedResources:   requests, Resources: &v1.ResourceRequirements{Requests: requests},
		VolumeMounts: []v1.VolumeMountStatus{{Name: "v", MountPath: "/v"}},
	}
	return s
}

// A patch is the one between the statuses in JSON.
func TestPatchIsThatOfTheJSON(t *testing.T) {
	statuses := []v1.PodStatus{{}, starting(), started(), {Phase: v1.PodSucceeded, Message: "at the end"}}
	for i, before := range statuses {
		for j, after := range statuses {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: `u"1`}, Status: before}
			got, err := Patch(pod, after)
			if err != nil {
				t.Fatal(err)
			}
			if i == j {
				if got != nil {
					t.Errorf("the patch between equal statuses %d is %s", i, got)
				}
				continue
			}
			left, err := json.Marshal(v1.Pod{Status: before})
			if err != nil {
				t.Fatal(err)
			}
			right, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: after})
			if err != nil {
				t.Fatal(err)
			}
			want, err := strategicpatch.CreateTwoWayMergePatch(left, right, v1.Pod{})
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("from status %d to %d:\n got %s\nwant %s", i, j, got, want)
			}
		}
	}
}

// The condition DisruptionTarget of another writer, which resets it when the pod is not disrupted
// after all, is as the API server has it. The kubelet's own stays until it is written.
func TestDisruptionTargetOfSeveralWriters(t *testing.T) {
	target := func(status v1.ConditionStatus, reason string) v1.PodCondition {
		return v1.PodCondition{Type: v1.DisruptionTarget, Status: status, Reason: reason}
	}
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	foreign, own := target(v1.ConditionTrue, "PreemptionByScheduler"), target(v1.ConditionTrue, v1.PodReasonTerminationByKubelet)
	for name, c := range map[string]struct{ own, api, want []v1.PodCondition }{
		"set":          {[]v1.PodCondition{ready}, []v1.PodCondition{foreign}, []v1.PodCondition{ready, foreign}},
		"reset":        {[]v1.PodCondition{ready, foreign}, []v1.PodCondition{target(v1.ConditionFalse, "")}, []v1.PodCondition{ready, target(v1.ConditionFalse, "")}},
		"removed":      {[]v1.PodCondition{ready, foreign}, nil, []v1.PodCondition{ready}},
		"by kubelet":   {[]v1.PodCondition{ready, own}, nil, []v1.PodCondition{ready, own}},
		"by kubelet 2": {[]v1.PodCondition{ready, own}, []v1.PodCondition{foreign}, []v1.PodCondition{ready, own}},
	} {
		got := WithForeign(v1.PodStatus{Conditions: c.own}, v1.PodStatus{Conditions: c.api}).Conditions
		if !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func BenchmarkPatch(b *testing.B) {
	pod, after := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Status: starting()}, started()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Patch(pod, after); err != nil {
			b.Fatal(err)
		}
	}
}
