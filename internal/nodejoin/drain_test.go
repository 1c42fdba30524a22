package nodejoin

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// pod returns a pod of a node.
func pod(name string, change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: v1.PodSpec{NodeName: "n1"}}
	change(p)
	return p
}

// draining returns an API server with pods, and the names of those that were asked
// to leave. A pod is kept as often as refusals says.
func draining(refusals int) (client *fake.Clientset, evicted *[]string) {
	asIs := func(*v1.Pod) {}
	client, evicted = fake.NewClientset(
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		pod("one", asIs), pod("two", asIs), pod("ended", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }),
		pod("static", func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} }),
		pod("daemon", func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
		}),
	), &[]string{}
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if refusals > 0 {
			refusals--
			return true, nil, apierrors.NewTooManyRequests("the budget", 0)
		}
		name := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		*evicted = append(*evicted, name)
		return true, nil, client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), a.GetNamespace(), name)
	})
	return client, evicted
}

// A node that is drained gets no new pods, and those that can go elsewhere leave it
// as soon as their budget allows it.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, evicted := draining(3)
		if err := Drain(context.Background(), client, "n1"); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(*evicted); !slices.Equal(*evicted, []string{"one", "two"}) {
			t.Errorf("evicted are %v", *evicted)
		}
		n, err := client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
		if err != nil || !n.Spec.Unschedulable {
			t.Errorf("the node is schedulable: %v, %v", n, err)
		}
	})
}

func TestDrainThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := draining(1 << 20)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := Drain(ctx, client, "n1"); err == nil || !strings.Contains(err.Error(), "left [a/one a/two]") || !strings.Contains(err.Error(), "the budget") {
			t.Errorf("%v", err)
		}
		if err := Drain(context.Background(), client, "n2"); err != nil {
			t.Errorf("a node that is not there: %v", err)
		}
	})
}
