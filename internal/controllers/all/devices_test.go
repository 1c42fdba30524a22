package all_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// addNode adds a ready node with devices.
func (c *shop) addNode(name string, devices ...string) {
	c.t.Helper()
	ctx := c.t.Context()
	n, err := c.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	n.Status.Allocatable = v1.ResourceList{v1.ResourcePods: quantity.MustParse("10"), v1.ResourceCPU: quantity.MustParse("8"), v1.ResourceMemory: quantity.MustParse("8Gi")}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	controllertest.Eventually(c.t, func() error { // others write to the node, too
		latest, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		latest.Status = n.Status
		_, err = c.CoreV1().Nodes().UpdateStatus(ctx, latest, metav1.UpdateOptions{})
		return err
	}, nil)
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &name, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
	}}
	for _, d := range devices {
		device, model, _ := strings.Cut(d, ":")
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
			Name: device, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
		})
	}
	if _, err := c.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// devices returns which devices the pods of the namespace have, and on which
// nodes they are.
func (c *shop) devices() string {
	ctx := c.t.Context()
	claims, err := c.ResourceV1().ResourceClaims("shop").List(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, claim := range claims.Items {
		words := []string{"unallocated"}
		if a := claim.Status.Allocation; a != nil {
			words = nil
			for _, r := range a.Devices.Results {
				words = append(words, r.Pool+"/"+r.Device)
			}
		}
		for _, user := range claim.Status.ReservedFor {
			pod, err := c.CoreV1().Pods("shop").Get(ctx, user.Name, metav1.GetOptions{})
			if err != nil {
				words = append(words, err.Error())
				continue
			}
			words = append(words, "pod on "+pod.Spec.NodeName)
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// unschedulable returns why pods are not scheduled.
func (c *shop) unschedulable() string {
	list, err := c.CoreV1().Pods("shop").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, p := range list.Items {
		for _, condition := range p.Status.Conditions {
			if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
				message, _, _ := strings.Cut(condition.Message, ". ")
				out = append(out, message)
			}
		}
	}
	return strings.Join(out, ", ")
}

// TestDevices runs a Deployment whose pods each need a device from a claim
// template, and more of them than there are devices.
func TestDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
		class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.example.com"].model == "large"`}}}
		class.Spec.ExtendedResourceName = new("example.com/gpu")
		if _, err := c.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		claims := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		claims.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "large"}}}
		if _, err := c.ResourceV1().ResourceClaimTemplates("shop").Create(ctx, claims, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.addNode("n2", "a:large", "b:small")
		c.addNode("n3", "a:large")
		labels, template := podTemplate("train")
		template.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
		deployment, err := c.AppsV1().Deployments("shop").Create(ctx, &apps.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "train"},
			Spec:       apps.DeploymentSpec{Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, c.devices, "n2/a pod on n2, n3/a pod on n3, unallocated")
		controllertest.Eventually(t, func() bool { return strings.Contains(c.unschedulable(), "2 cannot allocate all claims") }, true)

		c.addNode("n4", "a:large")
		controllertest.Eventually(t, c.devices, "n2/a pod on n2, n3/a pod on n3, n4/a pod on n4")

		if _, err := c.AppsV1().Deployments("shop").Patch(ctx, deployment.Name, "application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			list, err := c.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list.Items {
				if p.DeletionTimestamp != nil {
					_ = c.CoreV1().Pods("shop").Delete(ctx, p.Name, *metav1.NewDeleteOptions(0))
				}
			}
			return fmt.Sprintf("%d pods, claims %q", len(list.Items), c.devices())
		}, `0 pods, claims ""`)

		// The same devices serve requests for an extended resource.
		_, extended := podTemplate("classic")
		extended.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": quantity.MustParse("1")}
		pod, err := c.CoreV1().Pods("shop").Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "classic"}, Spec: extended.Spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() bool {
			pod, err = c.CoreV1().Pods("shop").Get(ctx, "classic", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			node := pod.Spec.NodeName
			return node != "" && c.devices() == node+"/a pod on "+node && pod.Status.ExtendedResourceClaimStatus != nil
		}, true)
		if err := c.CoreV1().Pods("shop").Delete(ctx, "classic", *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, c.devices, "")
		c.deleteNamespace()
	})
}
