package podselector

import (
	"fmt"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func service(namespace, name string, selector map[string]string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{Selector: selector}}
}

// A pod belongs to the services of its namespace all of whose labels it has, and to its
// controller.
func TestSelector(t *testing.T) {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"hash": "1"}}
	selectorOf := New(plugintest.Informers(t, set,
		service("shop", "web", map[string]string{"app": "web"}), service("shop", "web-v1", map[string]string{"app": "web", "version": "1"}),
		service("shop", "all", nil), service("shop", "api", map[string]string{"app": "api"}), service("other", "web", map[string]string{"tier": "front"})))
	for _, test := range []struct {
		labels  map[string]string
		ofSet   bool
		selects string
	}{
		{map[string]string{"app": "web"}, false, "app=web"},
		{map[string]string{"app": "web", "version": "1"}, false, "app=web,version=1"},
		{map[string]string{"app": "web", "version": "2", "tier": "front"}, false, "app=web"},
		{map[string]string{"app": "web", "hash": "1"}, true, "app=web,hash=1"},
		{map[string]string{"hash": "1"}, true, "hash=1"},
		{map[string]string{"app": ""}, false, ""},
		{nil, false, ""},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: types.UID("p"), Labels: test.labels}}
		if test.ofSet {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
		}
		got := ""
		if selector := selectorOf(p); selector != nil {
			got = selector.String()
		}
		if got != test.selects {
			t.Errorf("%v: %q, want %q", test.labels, got, test.selects)
		}
	}
}

// Services that do not select the pod cost no allocations.
func TestOtherServicesCostNothing(t *testing.T) {
	allocations := func(services int) float64 {
		var objects []runtime.Object
		for i := range services {
			objects = append(objects, service("shop", fmt.Sprint("s", i), map[string]string{"app": fmt.Sprint("app-", i), "tier": "back"}))
		}
		selectorOf := New(plugintest.Informers(t, objects...))
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"app": "web", "tier": "back"}}}
		return testing.AllocsPerRun(100, func() { selectorOf(p) })
	}
	// The list of services grows in steps.
	if few, many := allocations(1), allocations(100); many > few+20 {
		t.Errorf("%v allocations with 100 services, %v with one", many, few)
	}
}
