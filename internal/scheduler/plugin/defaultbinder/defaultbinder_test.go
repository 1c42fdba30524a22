package defaultbinder

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
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
		c := fake.NewClientset()
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
