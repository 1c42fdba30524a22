package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/coracle-io/coracle/internal/kubelet/dra/checkpoint"
)

// A claim that one of its drivers has undone is prepared again for the next pod,
// also while another driver has not undone it yet.
func TestHalfUnpreparedClaimIsPreparedAgain(t *testing.T) {
	first, second := newPod("first", "a"), newPod("second", "a")
	b := newBench(t, newClaim("a", []string{gpus, nics}, first, second))
	gpu, nic := b.serve(gpus), b.serve(nics)
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	nic.Released = func(*drapb.Claim) error { return errors.New("no power") }
	if err := m.Unprepare(t.Context(), first.UID); err == nil {
		t.Fatal("the claim is unprepared although a driver fails")
	}
	if err := m.Prepare(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if got, want := append(gpu.Prepared(), nic.Prepared()...), []string{"uid-a", "uid-a"}; !slices.Equal(got, want) {
		t.Errorf("prepared are %q, want %q", got, want)
	}
}

// A pod whose claims are prepared while the manager looks for pods that are gone
// keeps them.
func TestReconcileKeepsPodsThatStart(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	gpu := b.serve(gpus)
	m, _ := b.manager(b.files)
	m.config.Active = func() []*v1.Pod { // answers just before the pod is admitted
		if err := m.Prepare(b.Context(), pod); err != nil {
			t.Error(err)
		}
		return nil
	}
	gone := newPod("gone")
	if err := m.state.change(map[key]*claim{{"default", "old"}: {Claim: checkpoint.Claim{
		ClaimUID: "uid-old", ClaimName: "old", Namespace: "default", PodUIDs: sets.New(string(gone.UID)),
	}}}); err != nil {
		t.Fatal(err)
	}
	m.reconcile(t.Context())
	if got := gpu.Prepared(); !slices.Equal(got, []string{"uid-a"}) || !m.Prepared(pod) {
		t.Errorf("prepared are %q", got)
	}
	if got := m.state.pods(); !slices.Equal(got, []types.UID{pod.UID}) {
		t.Errorf("the pods with claims are %q", got)
	}
}

// The response of a driver for a claim is bounded, so that it fills neither the
// memory nor the checkpoint and does not block other claims.
func TestAnswersAreBounded(t *testing.T) {
	for name, devices := range map[string][]*drapb.Device{
		"many devices": slices.Repeat([]*drapb.Device{{PoolName: nodeName, DeviceName: "d"}}, maxClaimDevices+1),
		"a long name":  {{PoolName: nodeName, DeviceName: strings.Repeat("d", maxClaim)}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("p", "a", "b")
			b := newBench(t, newClaim("a", []string{gpus}, pod), newClaim("b", []string{gpus}, pod))
			gpu := b.serve(gpus)
			gpu.Answer = func(answer *drapb.NodePrepareResourcesResponse) { answer.Claims["uid-a"].Devices = devices }
			m, _ := b.manager(b.files)
			if err := m.Prepare(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "ResourceClaim a") || !strings.Contains(err.Error(), "more than") {
				t.Errorf("got %v", err)
			}
			if n := len(b.checkpoint()); n > 4096 {
				t.Errorf("the checkpoint has %d bytes", n)
			}
			gpu.Answer = nil
			gpu.Calls()
			if err := m.Prepare(t.Context(), pod); err != nil {
				t.Error(err)
			}
			expectCalls(t, gpu, "prepare default/a")
		})
	}
}

// A pod with more claims than a node serves waits. Its status does not look for them.
func TestManyClaims(t *testing.T) {
	var names []string
	for i := range maxClaims + 1 {
		names = append(names, fmt.Sprintf("claim-%d", i))
	}
	most, many := newPod("p", names[:maxClaims]...), newPod("p", names...)
	var claims []runtime.Object
	for _, name := range names {
		claims = append(claims, newClaim(name, []string{gpus}, most))
	}
	b := newBench(t, claims...)
	b.serve(gpus)
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), many); err == nil || !strings.Contains(err.Error(), "at most 256") {
		t.Errorf("a pod with %d claims: %v", len(names), err)
	}
	if err := m.Prepare(t.Context(), most); err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[*v1.Pod]int{most: maxClaims, many: 0} {
		c := &pod.Spec.Containers[0]
		if got := len(m.ResourcesStatus(pod, c)); got != want {
			t.Errorf("the status has %d claims, want %d", got, want)
		}
		if got := len(m.DynamicResources(pod, c)); got != want {
			t.Errorf("the pod resources have %d claims, want %d", got, want)
		}
	}
}
