package devicetainteviction

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/podquery"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// taint returns a taint that was added now.
func taint(key string, effect resourceapi.DeviceTaintEffect) resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: key, Value: "v", Effect: effect, TimeAdded: new(metav1.Now())}
}

func noExec(key string) resourceapi.DeviceTaint {
	return taint(key, resourceapi.DeviceTaintEffectNoExecute)
}

// slice returns a slice of pool p with one device, d.
func slice(generation int64, taints ...resourceapi.DeviceTaint) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", generation)},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "gpu.example.com", Pool: resourceapi.ResourcePool{Name: "p", Generation: generation, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "d", Taints: taints}},
		},
	}
}

// claim returns a claim that has a device and is reserved for the pod of its name.
func claim(name, device string, tolerations ...resourceapi.DeviceToleration) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "r", Driver: "gpu.example.com", Pool: "p", Device: device, Tolerations: tolerations},
			}}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID(name)}},
		},
	}
}

// pod returns a running pod that uses the claim of its name.
func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{NodeName: "n", ResourceClaims: []v1.PodResourceClaim{{Name: "c", ResourceClaimName: new(name)}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
}

func rule(effect resourceapi.DeviceTaintEffect, selector *resourceapi.DeviceTaintSelector) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule", UID: "rule", Generation: 1},
		Spec:       resourceapi.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: taint("a", effect)},
	}
}

// tolerate returns a toleration of a NoExecute taint; a negative number of seconds is for ever.
func tolerate(key string, seconds int64) resourceapi.DeviceToleration {
	t := resourceapi.DeviceToleration{Key: key, Operator: resourceapi.DeviceTolerationOpExists, Effect: resourceapi.DeviceTaintEffectNoExecute}
	if seconds >= 0 {
		t.TolerationSeconds = &seconds
	}
	return t
}

// cluster is a fake cluster with a running controller.
type cluster struct {
	*controllertest.Cluster
	t *testing.T
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	c := &cluster{controllertest.New(t, objects...), t}
	served := &metav1.APIResourceList{GroupVersion: "resource.k8s.io/v1"}
	for _, name := range []string{"resourceclaims", "resourceslices", "devicetaintrules"} {
		served.APIResources = append(served.APIResources, metav1.APIResource{Name: name})
	}
	c.Fake.Resources = []*metav1.APIResourceList{served}
	return c
}

func (c *cluster) run() {
	c.Run(Descriptor())
	synctest.Wait()
}

// pods returns the names of the existing pods.
func (c *cluster) pods() string {
	var names []string
	for _, p := range c.Pods("default") {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (c *cluster) set(s *resourceapi.ResourceSlice) {
	c.t.Helper()
	if _, err := c.Fake.ResourceV1().ResourceSlices().Update(c.t.Context(), s, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// condition returns the condition of the rule as "status reason: message".
func (c *cluster) condition() string {
	c.t.Helper()
	r, err := c.Fake.ResourceV1().DeviceTaintRules().Get(c.t.Context(), "rule", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	found := meta.FindStatusCondition(r.Status.Conditions, "EvictionInProgress")
	if found == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", found.Status, found.Reason, found.Message)
}

func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

// TestEviction taints the device of a running pod.
func TestEviction(t *testing.T) {
	const stays = -1
	noSchedule := taint("a", resourceapi.DeviceTaintEffectNoSchedule)
	anyEffect := tolerate("a", -1)
	anyEffect.Effect = ""
	for _, test := range []struct {
		about       string
		taints      []resourceapi.DeviceTaint
		tolerations []resourceapi.DeviceToleration
		want        time.Duration
	}{
		{"no toleration", []resourceapi.DeviceTaint{noExec("a")}, nil, 0},
		{"NoSchedule", []resourceapi.DeviceTaint{noSchedule}, nil, stays},
		{"another key", []resourceapi.DeviceTaint{noExec("a")}, []resourceapi.DeviceToleration{tolerate("b", -1)}, 0},
		{"for ever", []resourceapi.DeviceTaint{noExec("a")}, []resourceapi.DeviceToleration{tolerate("a", -1)}, stays},
		{"for ever, any effect", []resourceapi.DeviceTaint{noExec("a")}, []resourceapi.DeviceToleration{anyEffect}, stays},
		{"everything", []resourceapi.DeviceTaint{noExec("a")}, []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}, stays},
		{"some time", []resourceapi.DeviceTaint{noExec("a")}, []resourceapi.DeviceToleration{tolerate("a", 60)}, time.Minute},
		{"the shortest", []resourceapi.DeviceTaint{noExec("a")}, []resourceapi.DeviceToleration{tolerate("a", 60), tolerate("a", 30)}, 30 * time.Second},
		{"two taints", []resourceapi.DeviceTaint{noExec("a"), noExec("b")}, []resourceapi.DeviceToleration{tolerate("a", -1), tolerate("b", 10)}, 10 * time.Second},
	} {
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, pod("p"), claim("p", "d", test.tolerations...), pod("q"), claim("q", "other"), slice(1))
				c.run()
				after(time.Hour)
				for i := range test.taints {
					test.taints[i].TimeAdded = new(metav1.Now())
				}
				c.set(slice(1, test.taints...))
				if test.want > 0 {
					after(test.want - time.Second)
					if got := c.pods(); got != "p q" {
						t.Errorf("a second before, pods are %q", got)
					}
					after(time.Second)
				}
				want := "q"
				if test.want == stays {
					after(100 * time.Hour)
					want = "p q"
				}
				if got := c.pods(); got != want {
					t.Errorf("pods are %q, want %q", got, want)
				}
			})
		})
	}
}

// A taint that was added in the future, because the clock was set back, evicts once its toleration
// has passed too.
func TestEvictionAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := noExec("a")
		later.TimeAdded = &metav1.Time{Time: time.Now().Add(time.Hour)}
		c := newCluster(t, pod("p"), claim("p", "d", tolerate("a", 60)), slice(1, later))
		c.run()
		after(59 * time.Second)
		if got := c.pods(); got != "p" {
			t.Errorf("a second before, pods are %q", got)
		}
		after(2 * time.Second)
		if got := c.pods(); got != "" {
			t.Errorf("a second after, pods are %q", got)
		}
	})
}

// The condition DisruptionTarget, the event, the precondition and the metrics.
func TestHowPodsAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pod("p"), claim("p", "d"), slice(1, noExec("a")))
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		var condition *v1.PodCondition
		var precondition *metav1.Preconditions
		c.Fake.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			o, err := c.Fake.Tracker().Get(a.GetResource(), "default", "p")
			if err != nil {
				return true, nil, err
			}
			condition = podquery.Condition(&o.(*v1.Pod).Status, v1.DisruptionTarget)
			precondition = a.(clienttesting.DeleteAction).GetDeleteOptions().Preconditions
			return false, nil, nil
		})
		c.run()
		if condition == nil || condition.Status != v1.ConditionTrue || condition.Reason != "DeletionByDeviceTaintManager" ||
			condition.Message != "Device Taint manager: deleting due to NoExecute taint" {
			t.Errorf("condition %+v", condition)
		}
		if precondition == nil || precondition.UID == nil || *precondition.UID != "p" {
			t.Errorf("precondition %v", precondition)
		}
		if got := fmt.Sprint(c.DrainEvents()); got != "[Normal DeviceTaintManagerEviction Marking for deletion]" {
			t.Errorf("events %s", got)
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP device_taint_eviction_controller_pod_deletions_total [ALPHA] Total number of Pods deleted by DeviceTaintEvictionController since its start.
# TYPE device_taint_eviction_controller_pod_deletions_total counter
device_taint_eviction_controller_pod_deletions_total 1
`), "device_taint_eviction_controller_pod_deletions_total")
		if err != nil {
			t.Error(err)
		}
	})
}

// A conflict with another writer of the same pod does not end the eviction.
func TestEvictionAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pod("p"), claim("p", "d"), slice(1, noExec("a")))
		conflicts := 0
		c.Fake.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			conflicts++
			return conflicts == 1, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "p", errors.New("it changed"))
		})
		c.run()
		after(time.Minute)
		if got := c.pods(); got != "" || conflicts != 2 {
			t.Errorf("after %d patches there are pods %q", conflicts, got)
		}
	})
}

// A taint that is removed in time, or that a new generation of the pool does
// not have, evicts nobody.
func TestCancelledEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pod("p"), claim("p", "d", tolerate("a", 60)), slice(1, noExec("a")))
		c.run()
		after(30 * time.Second)
		c.set(slice(1))
		if got := fmt.Sprint(c.DrainEvents()); got != "[Normal DeviceTaintManagerEviction Cancelling deletion]" {
			t.Errorf("events %s", got)
		}
		after(time.Hour)
		c.set(slice(1, noExec("a")))
		if _, err := c.Fake.ResourceV1().ResourceSlices().Create(t.Context(), slice(2), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		if got := c.pods(); got != "p" {
			t.Errorf("pods are %q", got)
		}
	})
}

// A pod that gets a tainted device, or a claim that is reserved for it, is
// evicted; a pod for which the claim is not reserved is not.
func TestLateUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replaced := claim("other", "d")
		replaced.Status.ReservedFor[0].UID = "an earlier pod"
		late := claim("p", "d")
		late.Status = resourceapi.ResourceClaimStatus{}
		c := newCluster(t, pod("p"), late, pod("other"), replaced, slice(1, noExec("a")))
		c.run()
		after(time.Hour)
		if got := c.pods(); got != "other p" {
			t.Fatalf("pods are %q", got)
		}
		if _, err := c.Fake.ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), claim("p", "d"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := c.pods(); got != "other" {
			t.Errorf("pods are %q", got)
		}
	})
}

// A rule evicts the pods that use the devices it selects, and says so.
func TestRule(t *testing.T) {
	everything, driver := &resourceapi.DeviceTaintSelector{}, &resourceapi.DeviceTaintSelector{Driver: new("gpu.example.com"), Device: new("d")}
	const noExecute, none = resourceapi.DeviceTaintEffectNoExecute, resourceapi.DeviceTaintEffectNone
	for _, test := range []struct {
		about            string
		rule             *resourceapi.DeviceTaintRule
		pods, begin, end string
	}{
		{"one device", rule(noExecute, driver), "q t", "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace.", "False Completed: 1 pod evicted since starting the controller."},
		{"all devices", rule(noExecute, everything), "", "True PodsPendingEviction: 2 pods need to be evicted in 1 namespace.", "False Completed: 3 pods evicted since starting the controller."},
		{"no selector", rule(noExecute, nil), "p q t", "False NotStarted: ", "False NotStarted: "},
		{"None", rule(none, everything), "p q t",
			"False NoEffect: 1 published device selected. 3 allocated devices selected. 3 pods would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
			"False NoEffect: 1 published device selected. 3 allocated devices selected. 3 pods would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."},
		{"NoSchedule", rule(resourceapi.DeviceTaintEffectNoSchedule, everything), "p q t", "False OtherEffect: Eviction only happens for the NoExecute effect.", "False OtherEffect: Eviction only happens for the NoExecute effect."},
	} {
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, pod("p"), claim("p", "d"), pod("q"), claim("q", "other"), pod("t"), claim("t", "third", tolerate("a", 300)), slice(1))
				c.run()
				test.rule.Spec.Taint.TimeAdded = new(metav1.Now())
				if _, err := c.Fake.ResourceV1().DeviceTaintRules().Create(t.Context(), test.rule, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if test.about != "one device" && test.about != "all devices" { // else it depends on who is first
					if got := c.condition(); got != test.begin {
						t.Errorf("condition at first:\n%s\nwant\n%s", got, test.begin)
					}
				}
				after(time.Hour)
				if got := c.pods(); got != test.pods {
					t.Errorf("pods are %q, want %q", got, test.pods)
				}
				if got := c.condition(); got != test.end {
					t.Errorf("condition at last:\n%s\nwant\n%s", got, test.end)
				}
			})
		})
	}
}

// While pods tolerate the taint, the rule says how many will be evicted.
func TestRuleInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pod("p"), claim("p", "d", tolerate("a", 300)), rule(resourceapi.DeviceTaintEffectNoExecute, &resourceapi.DeviceTaintSelector{}), slice(1))
		c.run()
		if got := c.condition(); got != "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace." {
			t.Errorf("condition %q", got)
		}
		if err := c.Fake.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if got := c.condition(); got != "False NotStarted: " {
			t.Errorf("condition after the pod has left: %q", got)
		}
	})
}

// Without ResourceClaims the controller waits, and with them but without rules
// it evicts because of the taints of slices.
func TestWhatIsNotServed(t *testing.T) {
	for name, served := range map[string]bool{"nothing": false, "no rules": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, pod("p"), claim("p", "d"), slice(1, noExec("a")))
				want := ""
				if c.Fake.Resources[0].APIResources = c.Fake.Resources[0].APIResources[:2]; !served {
					c.Fake.Resources = nil
					want = "p"
				}
				c.run()
				after(time.Minute)
				if got := c.pods(); got != want {
					t.Errorf("pods are %q, want %q", got, want)
				}
			})
		})
	}
}

// The feature gates of the controller manager turn off the controller, or only rules.
func TestGates(t *testing.T) {
	for entry, want := range map[string]string{"DRADeviceTaints=false,DRADeviceTaintRules=false": "p", "DRADeviceTaintRules=false": ""} {
		t.Run(entry, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, pod("p"), claim("p", "d"), slice(1, noExec("a")))
				gates, err := feature.Parse(strings.Split(entry, ","))
				if err != nil {
					t.Fatal(err)
				}
				c.Env.Features = gates
				c.run()
				after(time.Minute)
				if got := c.pods(); got != want {
					t.Errorf("pods are %q, want %q", got, want)
				}
			})
		})
	}
}
