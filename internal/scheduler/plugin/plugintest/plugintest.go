// Package plugintest makes plugins over objects that informers hold, for their
// tests.
package plugintest

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// TB has the methods of *rapid.T and testing.TB that this package uses.
type TB interface {
	Helper()
	Fatal(arguments ...any)
}

// Informers returns informers that hold the objects without running.
func Informers(t TB, objects ...runtime.Object) informers.SharedInformerFactory {
	t.Helper()
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	Set(t, f, objects...)
	return f
}

// Set adds objects to informers, or newer versions of them.
func Set(t TB, f informers.SharedInformerFactory, objects ...runtime.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := indexer(t, f, obj).Add(obj); err != nil {
			t.Fatal(err)
		}
	}
}

// Delete removes objects from informers.
func Delete(t TB, f informers.SharedInformerFactory, objects ...runtime.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := indexer(t, f, obj).Delete(obj); err != nil {
			t.Fatal(err)
		}
	}
}

func indexer(t TB, f informers.SharedInformerFactory, obj runtime.Object) cache.Indexer {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	informer, err := f.ForResource(resource)
	if err != nil {
		t.Fatal(err)
	}
	return informer.Informer().GetIndexer()
}

// New makes a plugin with its default arguments over the objects.
func New(t *testing.T, factory framework.Factory, features []string, objects ...runtime.Object) (framework.Plugin, *framework.Handle) {
	t.Helper()
	gates, err := feature.Parse(features)
	if err != nil {
		t.Fatal(err)
	}
	h := &framework.Handle{Informers: Informers(t, objects...), Features: gates}
	p, err := factory.New(t.Context(), factory.DefaultArguments(), h)
	if err != nil {
		t.Fatal(err)
	}
	return p, h
}

// Filter asks a plugin about a pod on a node, PreFilter first.
func Filter(t *testing.T, p framework.Plugin, h *framework.Handle, pod *v1.Pod, snapshot *framework.Snapshot, node string) *framework.Status {
	t.Helper()
	state, info := framework.NewCycleState(h), framework.NewPodInfo(pod)
	if _, status := p.(framework.PreFilterPlugin).PreFilter(t.Context(), state, info, snapshot); !status.IsSuccess() {
		return status
	}
	return p.(framework.FilterPlugin).Filter(t.Context(), state, info, snapshot.Node(node))
}

// Snapshot returns the cluster of some nodes and of pods with a node.
func Snapshot(nodes []*v1.Node, pods ...*v1.Pod) *framework.Snapshot {
	s := framework.NewSnapshot()
	for _, n := range nodes {
		s.SetNode(n)
	}
	for _, p := range pods {
		s.AddPod(framework.NewPodInfo(p), p.Spec.NodeName)
	}
	return s
}

// Hint asks the hints of a plugin about an event; ok is false if the plugin
// did not register it.
func Hint(t *testing.T, p framework.Plugin, pod *v1.Pod, resource framework.EventResource, action framework.ActionType, old, new any) (hint framework.QueueingHint, ok bool) {
	t.Helper()
	events, err := p.(framework.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if !e.Event.Matches(framework.ClusterEvent{Resource: resource, Action: action}) {
			continue
		}
		ok = true
		if e.Hint == nil || e.Hint(framework.NewPodInfo(pod), old, new) == framework.Queue {
			return framework.Queue, true
		}
	}
	return framework.QueueSkip, ok
}

// Yaml reads an object in YAML or JSON, and fails the test if it has fields
// that do not exist.
func Yaml[T any](t TB, text string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}
