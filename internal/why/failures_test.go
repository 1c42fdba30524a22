package why

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// claiming is a pod with a claim whose selector fails on the device of node n1
// with an error that has control characters.
func claiming() []runtime.Object {
	p := smaller()
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimName: new("c")}}
	request := resourceapi.DeviceRequest{Name: "g", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.attributes["gpu.example.com"]["\u001b[2J\u001b]0;owned\u0007"] == "x"`,
		}}},
	}}
	return []runtime.Object{
		p, node("n1", "4"), &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}},
		&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: "n1", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "g", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: new("x")}}}},
		}},
		&resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "c", UID: "c"},
			Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}},
		},
	}
}

// The error of a plugin is the reason why the pod has no node.
func TestPluginThatFails(t *testing.T) {
	r, _ := report(t, Options{}, append(claiming(), node("n2", "100m"))...)
	const want = "plugin DynamicResources failed on node n1: "
	d := r.Scheduling
	if d == nil || d.Node != "" || len(d.Rejections) != 1 || !strings.HasPrefix(r.Answer, want) || !strings.HasPrefix(d.Message, want) {
		t.Fatalf("answer %q, scheduling %+v; want %s...", r.Answer, d, want)
	}
	if len(d.Nodes) != 2 || d.Nodes[0].Feasible || d.Nodes[1].Feasible || len(d.Nodes[0].Rejections) == 0 || len(d.Nodes[1].Rejections) == 0 {
		t.Errorf("nodes %+v, want both with what is in the way", d.Nodes)
	}
	var b strings.Builder
	r.WriteText(&b)
	if text := b.String(); !strings.Contains(text, want) || strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("text %q", text)
	}
}

// The rest of the report is there if the cluster cannot be read for a decision.
func TestDecisionThatFails(t *testing.T) {
	pod := func(whatIf ...runtime.Object) (*Report, error) {
		c := fake.NewSimpleClientset(unscheduled(), node("n1", "1"))
		c.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("etcd is gone")
		})
		return Pod(t.Context(), Options{Kubernetes: c, Namespace: "default", Name: "p", WhatIf: whatIf})
	}
	r, err := pod()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.NotRead, "what the scheduler would decide: etcd is gone") || r.Answer != "the scheduler says: 0/1 nodes are available: 1 Insufficient cpu." {
		t.Errorf("answer %q, not read %q", r.Answer, r.NotRead)
	}
	if _, err := pod(node("n1", "4")); err == nil || err.Error() != "etcd is gone" {
		t.Errorf("what-if: error %v, want one", err)
	}
}
