package pods_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/apiserver/pods"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/resource"
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
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"by": "test"}}, Target: corev1.ObjectReference{Name: node}}
		return pods.Bind(action(t, g, "web", "binding"), b, &metav1.CreateOptions{})
	}
	if err := bind("other", "one"); !apierrors.IsBadRequest(err) {
		t.Errorf("of another pod: %v", err)
	}
	if err := bind("web", ""); !apierrors.IsInvalid(err) {
		t.Errorf("to no node: %v", err)
	}
	if err := bind("web", "one"); err != nil {
		t.Fatal(err)
	}
	e, err := g.Request(t, "get", "", "pods", "default", "web").Get("")
	if err != nil {
		t.Fatal(err)
	}
	pod := e.Object.(*corev1.Pod)
	if c := pod.Status.Conditions; pod.Spec.NodeName != "one" || pod.Annotations["by"] != "test" || len(c) != 1 || c[0].Type != corev1.PodScheduled || c[0].Status != corev1.ConditionTrue {
		t.Errorf("%q %v %+v", pod.Spec.NodeName, pod.Annotations, c)
	}
	if err := bind("web", "two"); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `already assigned to node "one"`) {
		t.Errorf("a second time: %v", err)
	}
}

// A pod with a budget goes only if the budget has a disruption left.
func TestEvict(t *testing.T) {
	g := registrytest.Start(t)
	labels, one := map[string]string{"app": "web"}, intstr.FromInt32(1)
	for _, name := range []string{"a", "b"} {
		create(t, g, name, labels)
		_, err := g.Request(t, "update", "", "pods", "default", name).GuaranteedUpdate("", nil, func(current resource.Object) (resource.Object, error) {
			next := current.DeepCopyObject().(*corev1.Pod)
			next.Status.Phase = corev1.PodRunning
			next.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			return next, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	budget := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	if _, err := g.Request(t, "create", "policy", "poddisruptionbudgets", "default", "").Create(budget, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	evict := func(name string) error {
		return pods.Evict(action(t, g, name, "eviction"), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}}, &metav1.CreateOptions{})
	}
	if err := evict("a"); !refusedFor(err, "is still being processed by the server") {
		t.Errorf("before the controller: %v", err)
	}
	_, err := g.Request(t, "update", "policy", "poddisruptionbudgets", "default", "web").GuaranteedUpdate("", nil, func(current resource.Object) (resource.Object, error) {
		next := current.DeepCopyObject().(*policyv1.PodDisruptionBudget)
		next.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: next.Generation, DisruptionsAllowed: 1, DesiredHealthy: 1, CurrentHealthy: 2}
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := evict("a"); err != nil {
		t.Errorf("with a disruption left: %v", err)
	}
	if err := evict("b"); !refusedFor(err, "needs 1 healthy pods") {
		t.Errorf("without: %v", err)
	}
	if err := evict("missing"); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
}

// refusedFor says that an eviction was refused for a budget, with that cause.
func refusedFor(err error, cause string) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsTooManyRequests(err) || !errors.As(err, &status) || len(status.Status().Details.Causes) != 1 {
		return false
	}
	return strings.Contains(status.Status().Details.Causes[0].Message, cause)
}
