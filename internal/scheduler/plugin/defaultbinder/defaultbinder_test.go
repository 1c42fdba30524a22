package defaultbinder

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// The binding names the pod with its UID, and the node. An error is an error of
// the attempt.
func TestBind(t *testing.T) {
	refused := errors.New("refused")
	for _, want := range []error{nil, refused} {
		var got *v1.Binding
		c := fake.NewSimpleClientset()
		c.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			got, _ = action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
			return true, nil, want
		})
		made, err := Factory().New(t.Context(), nil, &framework.Handle{Client: c})
		if err != nil {
			t.Fatal(err)
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
		status := made.(*plugin).Bind(t.Context(), nil, framework.NewPodInfo(pod), "a")
		if !errors.Is(status.AsError(), want) {
			t.Errorf("%v, want %v", status.AsError(), want)
		}
		if got == nil || got.Namespace != "shop" || got.Name != "web" || got.UID != "1" || got.Target.Kind != "Node" || got.Target.Name != "a" {
			t.Errorf("bound by %+v", got)
		}
	}
}

// Errors that may pass are retried. A try that had its effect, although its answer
// was an error, counts.
func TestBindIsRetried(t *testing.T) {
	unavailable, conflict := apierrors.NewServiceUnavailable("restarting"), apierrors.NewConflict(v1.Resource("pods/binding"), "web", errors.New("pod web is already assigned to node"))
	for _, test := range []struct {
		name    string
		answers []error
		node    string // of the pod, as the API has it
		calls   int
		fails   bool
	}{
		{"a short outage", []error{unavailable, unavailable, nil}, "", 3, false},
		{"a long outage", []error{unavailable, unavailable, unavailable, unavailable, nil}, "", 4, true},
		{"an error that stays", []error{apierrors.NewForbidden(v1.Resource("pods/binding"), "web", nil), nil}, "", 1, true},
		{"the first try had its effect", []error{apierrors.NewInternalError(errors.New("timeout")), conflict}, "a", 2, false},
		{"another scheduler was faster", []error{apierrors.NewInternalError(errors.New("timeout")), conflict}, "b", 2, true},
		{"a conflict", []error{conflict, nil}, "a", 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
			stored := pod.DeepCopy()
			stored.Spec.NodeName = test.node
			c, calls := fake.NewSimpleClientset(stored), 0
			c.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				calls++
				return true, nil, test.answers[calls-1]
			})
			made, err := Factory().New(t.Context(), nil, &framework.Handle{Client: c})
			if err != nil {
				t.Fatal(err)
			}
			status := made.(*plugin).Bind(t.Context(), nil, framework.NewPodInfo(pod), "a")
			if status.IsSuccess() == test.fails || calls != test.calls {
				t.Errorf("%v after %d calls, want %d", status.AsError(), calls, test.calls)
			}
		})
	}
}
