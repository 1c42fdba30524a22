package all_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/podquery"
)

// cpu requests an amount of CPU.
func cpu(amount string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity.MustParse(amount)}
	}
}

func class(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.PriorityClassName = name } }

// runPod creates a pod, in the shop unless a change says otherwise.
func (c *shop) runPod(name string, changes ...func(*v1.Pod)) {
	c.t.Helper()
	_, template := podTemplate(name)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: template.Labels}, Spec: template.Spec}
	for _, change := range changes {
		change(p)
	}
	controllertest.Eventually(c.t, func() error { // the service account may not be there yet
		_, err := c.CoreV1().Pods(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{})
		return err
	}, nil)
}

// where returns the node of a pod of the shop, "unschedulable: MESSAGE", or "".
func (c *shop) where(name string) func() string {
	return func() string {
		p, err := c.CoreV1().Pods("shop").Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if condition := podquery.Condition(&p.Status, v1.PodScheduled); p.Spec.NodeName == "" && condition != nil {
			return "unschedulable: " + condition.Message
		}
		return p.Spec.NodeName
	}
}

// killTerminating ends the pods that are being deleted, as a kubelet does. It
// returns their names and the reasons of their condition DisruptionTarget.
func (c *shop) killTerminating() (killed []string) {
	c.t.Helper()
	list, err := c.CoreV1().Pods("shop").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		reason := ""
		if condition := podquery.Condition(&p.Status, v1.DisruptionTarget); condition != nil {
			reason = condition.Reason
		}
		killed = append(killed, p.Name+" "+reason)
		err := c.CoreV1().Pods("shop").Delete(c.t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if err != nil && !apierrors.IsNotFound(err) {
			c.t.Fatal(err)
		}
	}
	return killed
}

func (c *shop) removeAll() {
	c.t.Helper()
	if err := c.CoreV1().Pods("shop").DeleteCollection(c.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
		c.t.Fatal(err)
	}
	controllertest.Eventually(c.t, c.pods(""), 0)
}

// TestPredicates checks what the conformance tests of the scheduler's predicates
// require: resource limits, node selectors and host ports.
func TestPredicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		c.addNode("n2")
		if _, err := c.CoreV1().Nodes().Patch(t.Context(), "n2", types.MergePatchType, []byte(`{"metadata":{"labels":{"disk":"fast"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		const none = "0/2 nodes are available: "

		c.runPod("fills", cpu("6"))
		controllertest.Eventually(t, c.where("fills"), "n2")
		c.runPod("more", cpu("3"))
		controllertest.Eventually(t, func() bool {
			return strings.HasPrefix(c.where("more")(), "unschedulable: "+none) && strings.Contains(c.where("more")(), "Insufficient cpu")
		}, true)
		c.runPod("less", cpu("2"))
		controllertest.Eventually(t, c.where("less"), "n2")
		c.removeAll()

		selects := func(value string) func(*v1.Pod) {
			return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": value} }
		}
		c.runPod("matches", selects("fast"))
		controllertest.Eventually(t, c.where("matches"), "n2")
		c.runPod("does-not", selects("slow"))
		controllertest.Eventually(t, func() bool {
			return strings.Contains(c.where("does-not")(), "node(s) didn't match Pod's node affinity/selector")
		}, true)
		c.removeAll()

		port := func(ip string, protocol v1.Protocol) func(*v1.Pod) {
			return func(p *v1.Pod) {
				p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 8080, HostPort: 54323, HostIP: ip, Protocol: protocol}}
			}
		}
		c.runPod("pod1", port("127.0.0.1", v1.ProtocolTCP))
		c.runPod("pod2", port("10.0.0.7", v1.ProtocolTCP))
		c.runPod("pod3", port("10.0.0.7", v1.ProtocolUDP))
		for _, name := range []string{"pod1", "pod2", "pod3"} {
			controllertest.Eventually(t, c.where(name), "n2")
		}
		c.runPod("pod4", port("", v1.ProtocolTCP)) // on all addresses
		controllertest.Eventually(t, func() bool {
			return strings.Contains(c.where("pod4")(), "node(s) didn't have free ports for the requested pod ports")
		}, true)
	})
}

// TestPreemption checks what the conformance tests of preemption require: a pod
// of a higher priority, or a critical pod, preempts others, which get the
// condition DisruptionTarget.
func TestPreemption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		for i, name := range []string{"p1", "p2", "p3", "p4"} {
			_, err := c.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: int32(i + 1)}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		c.addNode("n2")
		for name, by := range map[string]string{"preemptor": "p3", "critical": "system-cluster-critical"} {
			c.runPod("low", cpu("4"), class("p1"))
			c.runPod("middle", cpu("3"), class("p2"))
			controllertest.Eventually(t, c.where("low"), "n2")
			controllertest.Eventually(t, c.where("middle"), "n2")
			c.runPod(name, cpu("4"), class(by))
			controllertest.Eventually(t, c.killTerminating, []string{"low PreemptionByScheduler"})
			controllertest.Eventually(t, c.where(name), "n2")
			controllertest.Eventually(t, c.where("middle"), "n2")
			c.removeAll()
		}
		c.verifyPreemptionPath()
	})
}

// verifyPreemptionPath runs a ReplicaSet for each of three priorities, which
// fill the node, and a pod that only fits without the pods of the two lower
// priorities.
func (c *shop) verifyPreemptionPath() {
	t := c.t
	for i, replicas := range []int32{4, 3, 1} {
		name := fmt.Sprintf("rs-%d", i+1)
		labels, template := podTemplate(name)
		template.Spec.PriorityClassName = fmt.Sprintf("p%d", i+1)
		template.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity.MustParse("1")}
		_, err := c.AppsV1().ReplicaSets("shop").Create(t.Context(), &apps.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apps.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, c.onNode(name), int(replicas))
	}
	c.runPod("last", cpu("7"), class("p4"))
	var killed []string
	controllertest.Eventually(t, func() bool {
		killed = append(killed, c.killTerminating()...)
		return c.where("last")() == "n2"
	}, true)
	for _, victim := range killed {
		if !strings.HasSuffix(victim, " PreemptionByScheduler") || strings.HasPrefix(victim, "rs-3-") {
			t.Errorf("%s was evicted", victim)
		}
	}
	if n := c.onNode("rs-3")(); n != 1 {
		t.Errorf("%d pods of rs-3 are on the node", n)
	}
}

// onNode counts the pods on a node whose names have a prefix.
func (c *shop) onNode(prefix string) func() int {
	return func() int {
		list, err := c.CoreV1().Pods("shop").List(c.t.Context(), metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		return len(slices.DeleteFunc(list.Items, func(p v1.Pod) bool { return p.Spec.NodeName == "" || !strings.HasPrefix(p.Name, prefix) }))
	}
}

// TestPriorityClassEndpoints creates, reads, changes and deletes PriorityClasses.
// Their values never change.
func TestPriorityClassEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		api := c.SchedulingV1().PriorityClasses()
		for _, name := range []string{"a", "b"} {
			if _, err := api.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"e2e": "yes"}}, Value: 1}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		patched, err := api.Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(`{"description":"patched"}`), metav1.PatchOptions{})
		if err != nil || patched.Description != "patched" {
			t.Errorf("patched to %q, error %v", patched.Description, err)
		}
		patched.Description = "updated"
		updated, err := api.Update(t.Context(), patched, metav1.UpdateOptions{})
		if err != nil || updated.Description != "updated" {
			t.Errorf("updated to %q, error %v", updated.Description, err)
		}
		updated.Value = 2
		if _, err := api.Update(t.Context(), updated, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("the change of the value gave %v", err)
		}
		if err := api.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "e2e=yes"}); err != nil {
			t.Error(err)
		}
		left, err := api.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != 2 {
			t.Errorf("%d classes are left, error %v: want the two of the system", len(left.Items), err)
		}
	})
}

// TestLimitRange gives pods the defaults of a LimitRange and refuses those
// outside of it, until it is deleted with others by their label.
func TestLimitRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		api := c.CoreV1().LimitRanges("shop")
		amounts := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: quantity.MustParse(text)} }
		_, err := api.Create(t.Context(), &v1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "limits", Labels: map[string]string{"e2e": "yes"}},
			Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{{
				Type: v1.LimitTypeContainer, Min: amounts("50m"), Max: amounts("500m"), Default: amounts("300m"), DefaultRequest: amounts("100m"),
			}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string { // admission learns of it by a watch
			_, template := podTemplate("usual")
			p, err := c.CoreV1().Pods("shop").Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Spec: template.Spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err.Error()
			}
			r := p.Spec.Containers[0].Resources
			return r.Requests.Cpu().String() + " " + r.Limits.Cpu().String()
		}, "100m 300m")
		_, template := podTemplate("large")
		large := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: template.Spec}
		large.Spec.Containers[0].Resources.Limits = amounts("600m")
		if _, err := c.CoreV1().Pods("shop").Create(t.Context(), large, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "maximum cpu usage per Container is 500m, but limit is 600m") {
			t.Errorf("a pod above the limits gave %v", err)
		}
		if _, err := api.Patch(t.Context(), "limits", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		everywhere, err := c.CoreV1().LimitRanges("").List(t.Context(), metav1.ListOptions{LabelSelector: "patched=yes"})
		if err != nil || len(everywhere.Items) != 1 {
			t.Errorf("listed %d, error %v", len(everywhere.Items), err)
		}
		if err := api.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "e2e=yes"}); err != nil {
			t.Error(err)
		}
		controllertest.Eventually(t, func() error {
			_, err := c.CoreV1().Pods("shop").Create(t.Context(), large, metav1.CreateOptions{})
			return err
		}, nil)
	})
}

// TestDeviceTaint evicts the pod of a device that a DeviceTaintRule taints, with
// the rights of the controller's role.
func TestDeviceTaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		c.addNode("n2", "gpu-0:A")
		ctx := t.Context()
		if _, err := c.ResourceV1().DeviceClasses().Create(ctx, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu"}}}
		if _, err := c.ResourceV1().ResourceClaims("shop").Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.runPod("trains", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("one")}}
		})
		controllertest.Eventually(t, c.where("trains"), "n2")
		rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
		rule.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Driver: new("gpu.example.com"), Device: new("gpu-0")}
		rule.Spec.Taint = resourceapi.DeviceTaint{Key: "example.com/broken", Effect: resourceapi.DeviceTaintEffectNone}
		create := func() {
			t.Helper()
			if _, err := c.ResourceV1().DeviceTaintRules().Create(ctx, rule, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		create()
		condition := func() string {
			r, err := c.ResourceV1().DeviceTaintRules().Get(ctx, "broken", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if found := meta.FindStatusCondition(r.Status.Conditions, "EvictionInProgress"); found != nil {
				return found.Reason + ": " + found.Message
			}
			return ""
		}
		controllertest.Eventually(t, func() bool {
			switch now := condition(); {
			case strings.Contains(now, "1 pod would be evicted in 1 namespace"):
				return true
			case strings.Contains(now, "0 pods would be evicted"): // it was decided before the pod was seen, and only once
				if err := c.ResourceV1().DeviceTaintRules().Delete(ctx, rule.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				create()
			}
			return false
		}, true)
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taint": map[string]any{"effect": resourceapi.DeviceTaintEffectNoExecute}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ResourceV1().DeviceTaintRules().Patch(ctx, "broken", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, c.killTerminating, []string{"trains DeletionByDeviceTaintManager"})
		controllertest.Eventually(t, func() bool { // written at the start of the eviction, or after it
			reason, _, _ := strings.Cut(condition(), ":")
			return slices.Contains([]string{"PodsPendingEviction", "NotStarted", "Completed"}, reason)
		}, true)
	})
}
