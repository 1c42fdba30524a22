package kubelet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	claimState = "/var/lib/kubelet/dra_manager_state"
	noClaims   = `\"Entries\":[]`
)

// reservedClaim creates an allocated claim for a pod, with devices of drivers.
// Without any it needs no preparation.
func (b *bench) reservedClaim(pod *v1.Pod, drivers ...string) {
	b.t.Helper()
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "uid-claim"}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, driver := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: driver})
	}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	if _, err := b.api.ResourceV1().ResourceClaims("default").Create(b.t.Context(), c, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// claimPod returns a pod that uses the claim.
func claimPod(name string) *v1.Pod {
	return pod(name, func(p *v1.Pod) {
		claim := "claim"
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}
		p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "device"}}
	})
}

// checkpointed reports whether the checkpoint of claims has a text.
func (b *bench) checkpointed(text string) bool {
	raw, err := b.files.ReadFile(claimState, 1<<20)
	return err == nil && strings.Contains(string(raw), text)
}

// A pod starts once its claim is prepared, and its end waits until the claim is
// not prepared any more.
func TestPodWaitsForItsClaim(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		p := claimPod("p")
		b.create(p)
		b.after(5 * time.Second)
		const missing = `Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim claim: resourceclaims.resource.k8s.io "claim" not found`
		if messages := b.events("FailedPrepareDynamicResources"); len(messages) == 0 || messages[0] != missing {
			t.Errorf("the events are %q", messages)
		}
		if sandboxes, _ := b.runtime.ListPodSandbox(t.Context(), nil); len(sandboxes) > 0 {
			t.Errorf("the pod has sandboxes: %v", sandboxes)
		}
		b.reservedClaim(p)
		b.after(15 * time.Second)
		if b.live("main") == "" || !b.checkpointed(`\"PodUIDs\":{\"uid-p\":{}}`) {
			t.Fatalf("the pod does not run: %v", b.events("FailedPrepareDynamicResources"))
		}
		b.delete("p", 0)
		b.after(time.Second)
		if b.get("p") != nil || !b.checkpointed(noClaims) {
			t.Error("the claim is in use after the end of its pod")
		}
	})
}

// A pod that waits for a driver can be deleted.
func TestPodWithoutDriverIsDeleted(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		p := claimPod("p")
		b.reservedClaim(p, "gpu.example.com")
		b.create(p)
		b.after(5 * time.Second)
		if messages := b.events("FailedPrepareDynamicResources"); len(messages) == 0 || !strings.HasSuffix(messages[0], "DRA driver gpu.example.com is not registered") {
			t.Errorf("the events are %q", messages)
		}
		b.delete("p", 0)
		b.after(time.Second)
		if b.get("p") != nil {
			t.Error("the pod is not deleted")
		}
	})
}

// After a restart, the kubelet knows which claims are prepared, even without a
// valid checkpoint. The claims of pods that are gone are not in use any more.
func TestClaimsAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		defer func() { b.stop() }()
		p := claimPod("p")
		b.reservedClaim(p)
		b.create(p)
		b.after(time.Second)
		id := b.live("main")
		b.stop()
		if err := b.files.WriteFile(claimState, []byte("{}x"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.after(time.Second)
		if !b.checkpointed(`\"PodUIDs\":{\"uid-p\":{}}`) || b.live("main") != id {
			t.Error("the claim of the pod that runs is not known")
		}
		b.stop()
		grace := int64(0)
		if err := b.api.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			t.Fatal(err)
		}
		if err := b.runtime.StopContainer(t.Context(), id, 0); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.after(3 * time.Minute)
		if !b.checkpointed(noClaims) {
			t.Error("the claim of a pod that is gone is in use")
		}
	})
}
