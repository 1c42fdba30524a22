package pods_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/pods"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// create stores a pod as a client would send it.
func create(t *testing.T, g *registrytest.Registry, name string, labels map[string]string) {
	t.Helper()
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/web:1"}}},
	}
	request := g.Request(t, "create", "", "pods", "default", "")
	request.Endpoint.Version.Default(pod)
	if _, err := request.Create(pod, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// action returns a request for a subresource of a pod.
func action(t *testing.T, g *registrytest.Registry, name, subresource string) *registry.Request {
	t.Helper()
	q := g.Request(t, "create", "", "pods", "default", name)
	q.Subresource, q.Info.Subresource = q.Endpoint.Resource.Subresource(subresource), subresource
	return q
}

func TestBind(t *testing.T) {
	g := registrytest.Start(t)
	create(t, g, "web", nil)
	bind := func(name, node string) error {
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"by": "test"}, Labels: map[string]string{corev1.LabelTopologyZone: "z"}}, Target: corev1.ObjectReference{Name: node}}
		return pods.Bind(action(t, g, "web", "binding"), b, &metav1.CreateOptions{})
	}
	if err := bind("other", "one"); !apierrors.IsBadRequest(err) {
		t.Errorf("of another pod: %v", err)
	}
	if err := bind("web", ""); !apierrors.IsInvalid(err) {
		t.Errorf("to no node: %v", err)
	}
	if err := bind("web", "Bad_Name"); !apierrors.IsInvalid(err) {
		t.Errorf("to a name that no node has: %v", err)
	}
	if _, err := g.Request(t, "update", "", "pods", "default", "web").UpdateUnchecked("", nil, func(current resource.Object) (resource.Object, error) {
		pod := current.(*corev1.Pod).DeepCopy()
		pod.Status.NominatedNodeName = "two"
		pod.Annotations, pod.Labels = map[string]string{"a": "1"}, map[string]string{"b": "2"}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
		return pod, nil
	}); err != nil {
		t.Fatal(err)
	}
	before, err := g.Request(t, "get", "", "pods", "default", "web").Get("")
	if err != nil {
		t.Fatal(err)
	}
	unbound := before.Object.DeepCopyObject()
	if err := bind("web", "one"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(unbound, before.Object.(runtime.Object)); diff != "" {
		t.Errorf("the binding changed the stored pod (-before +after):\n%s", diff)
	}
	e, err := g.Request(t, "get", "", "pods", "default", "web").Get("")
	if err != nil {
		t.Fatal(err)
	}
	pod := e.Object.(*corev1.Pod)
	if c := pod.Status.Conditions; pod.Spec.NodeName != "one" || pod.Annotations["by"] != "test" || pod.Labels[corev1.LabelTopologyZone] != "z" || len(c) != 1 || c[0].Type != corev1.PodScheduled || c[0].Status != corev1.ConditionTrue || c[0].ObservedGeneration != pod.Generation || pod.Generation == 0 {
		t.Errorf("%q %v %+v", pod.Spec.NodeName, pod.Annotations, c)
	}
	if pod.Status.NominatedNodeName != "" {
		t.Errorf("a bound pod is still nominated for %q", pod.Status.NominatedNodeName)
	}
	if err := bind("web", "two"); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `already assigned to node "one"`) {
		t.Errorf("a second time: %v", err)
	}
}

// A pod with a budget is evicted only if the budget allows a disruption.
func TestEvict(t *testing.T) {
	g := registrytest.Start(t)
	labels := map[string]string{"app": "web"}
	for _, name := range []string{"a", "b"} {
		create(t, g, name, labels)
		run(t, g, name, corev1.ConditionTrue)
	}
	budget(t, g, labels, policyv1.IfHealthyBudget)
	evict := func(name string) error {
		return pods.Evict(action(t, g, name, "eviction"), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}}, &metav1.CreateOptions{})
	}
	if err := evict("a"); !refusedFor(err, "is still being processed by the server") {
		t.Errorf("before the controller: %v", err)
	}
	allow(t, g, 1)
	if err := evict("a"); err != nil {
		t.Errorf("with a disruption left: %v", err)
	}
	if err := evict("b"); !refusedFor(err, "does not allow evicting pods currently") {
		t.Errorf("without: %v", err)
	}
	if err := evict("missing"); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
}

// A refusal says what keeps the budget from allowing a disruption.
func TestRefusals(t *testing.T) {
	const failed = policyv1.SyncFailedReason
	for name, c := range map[string]struct {
		healthy         int32 // of 3
		reason, message string
		want            string
	}{
		"too few":                {healthy: 3, want: "The disruption budget web needs 3 healthy pods and has 3 currently"},
		"too few, and a reason":  {healthy: 2, reason: "InsufficientPods", message: "few", want: "The disruption budget web needs 3 healthy pods and has 2 currently"},
		"a failure":              {healthy: 3, reason: failed, message: "found no scale", want: "The disruption budget web does not allow evicting pods currently because it failed sync: found no scale"},
		"a failure of no reason": {healthy: 3, reason: failed, want: "The disruption budget web needs 3 healthy pods and has 3 currently"},
		"enough, and a reason":   {healthy: 4, reason: "Other", message: "they leave", want: "The disruption budget web does not allow evicting pods currently (Other): they leave"},
		"enough":                 {healthy: 4, reason: "InsufficientPods", want: "The disruption budget web does not allow evicting pods currently"},
	} {
		t.Run(name, func(t *testing.T) {
			g := registrytest.Start(t)
			labels := map[string]string{"app": "web"}
			create(t, g, "a", labels)
			run(t, g, "a", corev1.ConditionTrue)
			budget(t, g, labels, policyv1.IfHealthyBudget)
			amend(t, g, "policy", "poddisruptionbudgets", "web", func(b *policyv1.PodDisruptionBudget) {
				b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DesiredHealthy: 3, CurrentHealthy: c.healthy}
				if c.reason != "" {
					b.Status.Conditions = []metav1.Condition{{
						Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: c.reason, Message: c.message, LastTransitionTime: metav1.Now(),
					}}
				}
			})
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			if err := pods.Evict(action(t, g, "a", "eviction"), eviction, &metav1.CreateOptions{}); !refusedFor(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// amend changes a stored object.
func amend[T resource.Object](t *testing.T, g *registrytest.Registry, group, plural, name string, change func(T)) {
	t.Helper()
	_, err := g.Request(t, "update", group, plural, "default", name).UpdateUnchecked("", nil, func(current resource.Object) (resource.Object, error) {
		next := current.DeepCopyObject().(T)
		change(next)
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run makes a pod running, ready or not.
func run(t *testing.T, g *registrytest.Registry, name string, ready corev1.ConditionStatus) {
	t.Helper()
	amend(t, g, "", "pods", name, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	})
}

// budget stores a budget for the pods with the labels, which its controller
// has not observed yet.
func budget(t *testing.T, g *registrytest.Registry, labels map[string]string, policy policyv1.UnhealthyPodEvictionPolicyType) {
	t.Helper()
	b := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, UnhealthyPodEvictionPolicy: &policy,
		},
	}
	if _, err := g.Request(t, "create", "policy", "poddisruptionbudgets", "default", "").Create(b, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// allow sets the allowed disruptions, as the disruption controller does.
func allow(t *testing.T, g *registrytest.Registry, disruptions int32) {
	t.Helper()
	amend(t, g, "policy", "poddisruptionbudgets", "web", func(b *policyv1.PodDisruptionBudget) {
		b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: disruptions, DesiredHealthy: 1, CurrentHealthy: 1 + disruptions}
	})
}

// Preconditions of an eviction are checked before anything is written, and
// hold after the eviction's own change of the pod.
func TestEvictPreconditions(t *testing.T) {
	labels := map[string]string{"app": "web"}
	for name, c := range map[string]struct {
		of      func(*corev1.Pod) *metav1.Preconditions
		refused bool
	}{
		"its revision": {of: func(p *corev1.Pod) *metav1.Preconditions {
			return &metav1.Preconditions{ResourceVersion: &p.ResourceVersion}
		}},
		"its UID":          {of: func(p *corev1.Pod) *metav1.Preconditions { return &metav1.Preconditions{UID: &p.UID} }},
		"another revision": {func(*corev1.Pod) *metav1.Preconditions { return &metav1.Preconditions{ResourceVersion: ptr.To("1")} }, true},
		"another UID":      {func(*corev1.Pod) *metav1.Preconditions { return metav1.NewUIDPreconditions("other") }, true},
	} {
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			t.Run(fmt.Sprintf("%s, dry run %v", name, dryRun), func(t *testing.T) {
				g := registrytest.Start(t)
				create(t, g, "a", labels)
				run(t, g, "a", corev1.ConditionTrue)
				budget(t, g, labels, policyv1.IfHealthyBudget)
				allow(t, g, 1)
				pod := object[*corev1.Pod](t, g, "", "pods", "a")
				eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}, DeleteOptions: &metav1.DeleteOptions{Preconditions: c.of(pod)}}
				err := pods.Evict(action(t, g, "a", "eviction"), eviction, &metav1.CreateOptions{DryRun: dryRun})
				if c.refused != apierrors.IsConflict(err) || !c.refused && err != nil {
					t.Error(err)
				}
				gone := !c.refused && dryRun == nil
				_, err = g.Request(t, "get", "", "pods", "default", "a").Get("")
				if gone != apierrors.IsNotFound(err) {
					t.Errorf("the pod: %v", err)
				} else if !gone && object[*corev1.Pod](t, g, "", "pods", "a").ResourceVersion != pod.ResourceVersion {
					t.Error("the pod has been changed")
				}
				if b := object[*policyv1.PodDisruptionBudget](t, g, "policy", "poddisruptionbudgets", "web"); (b.Status.DisruptionsAllowed == 0) != gone {
					t.Errorf("the budget allows %d disruptions", b.Status.DisruptionsAllowed)
				}
			})
		}
	}
}

// object returns a stored object.
func object[T resource.Object](t *testing.T, g *registrytest.Registry, group, plural, name string) T {
	t.Helper()
	e, err := g.Request(t, "get", group, plural, "default", name).Get("")
	if err != nil {
		t.Fatal(err)
	}
	return e.Object.(T)
}

// rival is a store with a concurrent write just before a pod changes.
type rival struct {
	store.Store
	write func() // called once, then nil
}

func (s *rival) first(key string) {
	if write := s.write; write != nil && strings.HasPrefix(key, "/registry/pods/") {
		s.write = nil
		write()
	}
}

// Update implements store.Store.
func (s *rival) Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (int64, error) {
	s.first(key)
	return s.Store.Update(ctx, key, value, revision, ttl)
}

// A pod that is evicted without a disruption because it is not ready is
// checked again once it is ready. The next pod of the same name is not
// evicted.
func TestEvictWhileItChanges(t *testing.T) {
	labels := map[string]string{"app": "web"}
	for name, c := range map[string]struct {
		begin, meanwhile func(*testing.T, *registrytest.Registry)
		answered         func(error) bool
		stays            bool
	}{
		"pending, then ready": {
			begin:     func(*testing.T, *registrytest.Registry) {},
			meanwhile: func(t *testing.T, g *registrytest.Registry) { run(t, g, "a", corev1.ConditionTrue) },
			answered:  func(err error) bool { return refusedFor(err, "needs 1 healthy pods") },
			stays:     true,
		},
		"unready, then ready": {
			begin:     func(t *testing.T, g *registrytest.Registry) { run(t, g, "a", corev1.ConditionFalse) },
			meanwhile: func(t *testing.T, g *registrytest.Registry) { run(t, g, "a", corev1.ConditionTrue) },
			answered:  func(err error) bool { return refusedFor(err, "needs 1 healthy pods") },
			stays:     true,
		},
		"pending, then unready": {
			begin:     func(*testing.T, *registrytest.Registry) {},
			meanwhile: func(t *testing.T, g *registrytest.Registry) { run(t, g, "a", corev1.ConditionFalse) },
			answered:  func(err error) bool { return err == nil },
		},
		"replaced": {
			begin: func(t *testing.T, g *registrytest.Registry) { run(t, g, "a", corev1.ConditionFalse) },
			meanwhile: func(t *testing.T, g *registrytest.Registry) {
				if _, _, err := g.Request(t, "delete", "", "pods", "default", "a").Delete(&metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				create(t, g, "a", labels)
			},
			answered: apierrors.IsNotFound,
			stays:    true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &rival{Store: mem.New()}
			g := registrytest.StartOn(t, s, all.All())
			create(t, g, "a", labels)
			budget(t, g, labels, policyv1.AlwaysAllow)
			allow(t, g, 0)
			c.begin(t, g)
			s.write = func() { c.meanwhile(t, g) }
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			if err := pods.Evict(action(t, g, "a", "eviction"), eviction, &metav1.CreateOptions{}); !c.answered(err) {
				t.Errorf("answered with %v", err)
			}
			e, err := g.Request(t, "get", "", "pods", "default", "a").Get("")
			switch {
			case !c.stays && !apierrors.IsNotFound(err):
				t.Errorf("it is still there: %v", err)
			case c.stays && err != nil:
				t.Error(err)
			case c.stays && podquery.HasCondition(&e.Object.(*corev1.Pod).Status, corev1.DisruptionTarget):
				t.Error("it is said to be disrupted")
			}
		})
	}
}

// refusedFor reports whether an eviction was refused because of a budget,
// with a cause.
func refusedFor(err error, cause string) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsTooManyRequests(err) || !errors.As(err, &status) || len(status.Status().Details.Causes) != 1 {
		return false
	}
	return strings.Contains(status.Status().Details.Causes[0].Message, cause)
}
