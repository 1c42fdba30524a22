package extendedresource

import (
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func class(name, extended string, created int64) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0))}}
	if extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	return c
}

func TestClass(t *testing.T) {
	c := controllertest.New(t, class("plain", "", 1), class("old", "example.com/gpu", 1), class("new", "example.com/gpu", 2), class("newer", "example.com/gpu", 2),
		class("nic", "example.com/nic", 1))
	classes, err := New(t.Context(), c.Env.Client.Informers)
	if err != nil {
		t.Fatal(err)
	}
	controllertest.WaitSynced(t, c.Env.Client.Informers.Resource().V1().DeviceClasses().Informer())
	for resource, want := range map[v1.ResourceName]string{
		"example.com/gpu": "new", "example.com/nic": "nic", "deviceclass.resource.kubernetes.io/plain": "plain", "deviceclass.resource.kubernetes.io/old": "old",
		"example.com/other": "", "cpu": "", "plain": "",
	} {
		got := ""
		if found := classes.Class(resource); found != nil {
			got = found.Name
		}
		if got != want {
			t.Errorf("%s: class %q, want %q", resource, got, want)
		}
	}
	if (*Classes)(nil).Class("example.com/gpu") != nil {
		t.Error("no classes have a class")
	}
}

// Devices are for nodes that do not have the resource themselves.
func TestOnNode(t *testing.T) {
	c := controllertest.New(t, class("gpu", "example.com/gpu", 1))
	classes, err := New(t.Context(), c.Env.Client.Informers)
	if err != nil {
		t.Fatal(err)
	}
	controllertest.WaitSynced(t, c.Env.Client.Informers.Resource().V1().DeviceClasses().Informer())
	for amount, want := range map[string]bool{"": true, "0": true, "2": false} {
		n := framework.NewNodeInfo("a")
		node := &v1.Node{}
		if amount != "" {
			node.Status.Allocatable = v1.ResourceList{"example.com/gpu": resource.MustParse(amount)}
		}
		n.SetNode(node)
		if got := classes.OnNode("example.com/gpu", n); got != want {
			t.Errorf("on a node with %q: %t, want %t", amount, got, want)
		}
		if classes.OnNode("example.com/other", n) {
			t.Errorf("on a node with %q: devices for another resource", amount)
		}
	}
}
