package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controller/kinds"
)

func budgetOf(name string) *policy.PodDisruptionBudget {
	return &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: policy.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
}

func podOf(name string, owner types.UID) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: owner, Controller: new(true)}}
	}
	return p
}

func TestEvents(t *testing.T) {
	replicaSet := &apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "rs"}, Spec: apps.ReplicaSetSpec{Replicas: new(int32(3))}}
	several := budgetOf("several")
	granted := budgetOf("web")
	granted.Status.DisruptedPods = map[string]metav1.Time{"a": metav1.NewTime(time.Unix(1000, 0))}
	for _, c := range []struct {
		name string
		pods []*v1.Pod
		pdbs []*policy.PodDisruptionBudget
		late bool // the pods come when the controller knows all budgets
		want string
	}{
		{"usual", []*v1.Pod{podOf("a", "rs")}, []*policy.PodDisruptionBudget{budgetOf("web")}, false, ""},
		{"without a controller", []*v1.Pod{podOf("a", "")}, []*policy.PodDisruptionBudget{budgetOf("web")}, false, "Warning UnmanagedPods Pods selected by this"},
		{"two budgets", []*v1.Pod{podOf("a", "rs")}, []*policy.PodDisruptionBudget{budgetOf("web"), several}, true, `Warning MultiplePodDisruptionBudgets Pod "default"/"a" matches multiple PodDisruptionBudgets.  Chose "`},
		{"not deleted", []*v1.Pod{podOf("a", "rs")}, []*policy.PodDisruptionBudget{granted}, false, "Warning NotDeleted Pod was expected by PDB default/web to be deleted but it wasn't"},
		{"another controller with the same name", []*v1.Pod{podOf("a", "former")}, []*policy.PodDisruptionBudget{budgetOf("web")}, false,
			`Warning CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: found no controllers for pod "a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := controllertest.New(t, replicaSet.DeepCopy())
				for _, pdb := range c.pdbs {
					if err := cluster.Fake.Tracker().Add(pdb); err != nil {
						t.Fatal(err)
					}
				}
				add := func() {
					for _, p := range c.pods {
						if err := cluster.Fake.Tracker().Add(p); err != nil {
							t.Fatal(err)
						}
					}
				}
				if !c.late {
					add()
				}
				cluster.Run(Descriptor())
				synctest.Wait()
				if c.late {
					add()
					synctest.Wait()
				}
				events := cluster.DrainEvents()
				if c.want == "" && len(events) > 0 || c.want != "" && !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, c.want) }) {
					t.Errorf("events %q, want %q", events, c.want)
				}
			})
		})
	}
}

// A budget with a malformed selector allows no disruptions.
func TestMalformedSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pdb := budgetOf("web")
		pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"too/many/slashes": "web"}}
		pdb.Status.DisruptionsAllowed = 2
		c := controllertest.New(t, pdb)
		c.Run(Descriptor())
		synctest.Wait()
		if events := c.DrainEvents(); len(events) == 0 || !strings.HasPrefix(events[0], `Warning NoPods Failed to get pods: key: Invalid value: "too/many/slashes": `) {
			t.Errorf("events %q", events)
		}
		got, err := c.Fake.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		condition := meta.FindStatusCondition(got.Status.Conditions, policy.DisruptionAllowedCondition)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != policy.SyncFailedReason || got.Status.DisruptionsAllowed != 0 {
			t.Errorf("status %+v", got.Status)
		}
	})
}

// The status of a budget whose pods cannot be counted is written once, and not with each try.
func TestFailureIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, budgetOf("web"))
		for i := range 8 {
			if err := c.Fake.Tracker().Add(podOf(fmt.Sprint("p", i), types.UID(fmt.Sprint("former", i)))); err != nil {
				t.Fatal(err)
			}
		}
		c.Run(Descriptor())
		time.Sleep(time.Hour)
		synctest.Wait()
		writes := 0
		for _, action := range c.Fake.Actions() {
			if action.Matches("update", "poddisruptionbudgets/status") {
				writes++
			}
		}
		if writes != 1 {
			t.Errorf("%d writes", writes)
		}
	})
}

// A pod that was to be disrupted and was not is no longer a target after two minutes.
func TestStaleDisruptionTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := func(name string, change func(*v1.Pod)) *v1.Pod {
			p := podOf(name, "")
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: metav1.Now(),
			})
			change(p)
			return p
		}
		c := controllertest.New(t,
			target("running", func(*v1.Pod) {}),
			target("kubelet", func(p *v1.Pod) { p.Status.Conditions[1].Reason = v1.PodReasonTerminationByKubelet }),
			target("finished", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }),
		)
		c.Run(Descriptor())
		state := func() string {
			synctest.Wait()
			var out []string
			for _, p := range c.Pods("default") {
				c := p.Status.Conditions[1]
				out = append(out, fmt.Sprintf("%s=%s(%s)", p.Name, c.Status, c.Reason))
			}
			return strings.Join(out, " ")
		}
		if got := state(); got != "finished=True(EvictionByEvictionAPI) kubelet=True(TerminationByKubelet) running=True(EvictionByEvictionAPI)" {
			t.Errorf("at first: %s", got)
		}
		time.Sleep(disruptionTimeout + time.Second)
		if got := state(); got != "finished=True(EvictionByEvictionAPI) kubelet=True(TerminationByKubelet) running=False()" {
			t.Errorf("later: %s", got)
		}
	})
}

// Resources are discovered once, and again for a kind that is unknown, but not all the time.
func TestResourcesOfKinds(t *testing.T) {
	served := []kinds.Kind{{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Web"},
		Resource:         schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "webs"},
	}}
	var r resources
	now, asked := time.Unix(1000, 0), 0
	find := func(kind string) string {
		resource, ok, err := r.find(schema.GroupKind{Group: "example.com", Kind: kind}, now, func() ([]kinds.Kind, error) { asked++; return served, nil })
		return fmt.Sprint(resource.Resource, ok, err, asked)
	}
	for _, step := range []struct{ kind, want string }{
		{"Web", "webstrue <nil> 1"}, {"Web", "webstrue <nil> 1"}, {"Other", "false <nil> 1"},
	} {
		if got := find(step.kind); got != step.want {
			t.Errorf("%s: %s, want %s", step.kind, got, step.want)
		}
	}
	now = now.Add(rediscovery)
	if got := find("Other"); got != "false <nil> 2" {
		t.Errorf("an unknown kind later: %s", got)
	}
	r.forget(schema.GroupKind{Group: "example.com", Kind: "Web"})
	now = now.Add(rediscovery)
	if got := find("Web"); got != "webstrue <nil> 3" {
		t.Errorf("a forgotten kind: %s", got)
	}
}

// The numbers of workers can be set.
func TestConcurrentSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pdb := budgetOf("web")
		pdb.Spec.MaxUnavailable, pdb.Spec.MinAvailable = nil, new(intstr.FromInt32(1))
		c := controllertest.New(t, pdb, podOf("a", ""))
		c.Run(Descriptor(), "--concurrent-disruption-syncs=2", "--concurrent-disruption-stalepod-syncs=2")
		controllertest.Eventually(t, func() int32 {
			got, err := c.Fake.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return got.Status.CurrentHealthy
		}, 1)
	})
}
