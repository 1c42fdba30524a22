package namespace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// cluster is a fake cluster with the namespace shop and its content.
type cluster struct {
	*controllertest.Cluster
	t       *testing.T
	objects *metadatafake.FakeMetadataClient
	fail    map[string]error // of deletions, by resource
	gone    []string         // deleted objects, in order
	asked   []string         // deletion requests, in order
}

// boats is a group version of an aggregated API server.
var boats = schema.GroupVersion{Group: "example.com", Version: "v1"}

// namespace returns the namespace shop, which is being deleted.
func namespace(finalizers ...v1.FinalizerName) *v1.Namespace {
	return &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &metav1.Time{Time: time.Now()}},
		Spec:       v1.NamespaceSpec{Finalizers: finalizers},
	}
}

// held is the finalizer of objects whose names end in "-held".
const held = "example.com/held"

// newCluster returns a cluster with objects, each "kind/name". Its API deletes objects
// without finalizers at once.
func newCluster(t *testing.T, ns *v1.Namespace, objects ...string) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &cluster{Cluster: controllertest.New(t, ns), t: t, objects: metadatafake.NewSimpleMetadataClient(scheme), fail: map[string]error{}}
	for _, o := range objects {
		kind, name, _ := strings.Cut(o, "/")
		gv := v1.SchemeGroupVersion
		if kind == "Boat" {
			gv = boats
		}
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		object.SetGroupVersionKind(gv.WithKind(kind))
		if strings.HasSuffix(name, "-held") {
			object.Finalizers = []string{held}
		}
		if err := w.objects.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	all := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	w.Fake.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: all},
			{Name: "nodes", Kind: "Node", Verbs: all},
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: all},
			{Name: "pods/status", Kind: "Pod", Namespaced: true, Verbs: all},
			{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: all},
		}},
		{GroupVersion: boats.String(), APIResources: []metav1.APIResource{
			{Name: "boats", Kind: "Boat", Namespaced: true, Verbs: metav1.Verbs{"delete", "list"}},
		}},
	}
	w.objects.PrependReactor("delete-collection", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		list, err := w.objects.Tracker().List(a.GetResource(), schema.GroupVersionKind{Group: "fake-metadata-client-group", Version: "v1"}, "shop")
		if err != nil {
			return true, nil, err
		}
		items, err := meta.ExtractList(list)
		for _, item := range items {
			w.delete(a.GetResource(), item.(metav1.Object))
		}
		if err != nil {
			return true, nil, err
		}
		return true, nil, w.answer(a)
	})
	w.objects.PrependReactor("delete", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		object, err := w.objects.Tracker().Get(a.GetResource(), "shop", a.(clienttesting.DeleteAction).GetName())
		if err != nil {
			return true, nil, err
		}
		w.delete(a.GetResource(), object.(metav1.Object))
		return true, nil, w.answer(a)
	})
	return w
}

// answer records a deletion request and returns its result.
func (w *cluster) answer(a clienttesting.Action) error {
	w.asked = append(w.asked, a.GetVerb()+" "+a.GetResource().Resource)
	return w.fail[a.GetResource().Resource]
}

func (w *cluster) delete(resource schema.GroupVersionResource, object metav1.Object) {
	if len(object.GetFinalizers()) == 0 && w.fail[resource.Resource] == nil {
		w.end(resource, object.GetName())
	}
}

// end removes an object regardless of its finalizers.
func (w *cluster) end(resource schema.GroupVersionResource, name string) {
	w.t.Helper()
	if err := w.objects.Tracker().Delete(resource, "shop", name); err != nil {
		w.t.Error(err)
	}
	w.gone = append(w.gone, resource.Resource+"/"+name)
}

func (w *cluster) run() {
	w.Run(controller.Descriptor{New: func(env *controller.Env) (controller.Controller, error) {
		return newNamespaces(env, w.objects, 10), nil
	}})
	synctest.Wait()
}

// after waits for d and then for the controller to become idle.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

func (w *cluster) namespace() *v1.Namespace {
	w.t.Helper()
	ns, err := w.Fake.CoreV1().Namespaces().Get(w.t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ns
}

// state returns the namespace's phase, finalizers and true conditions.
func (w *cluster) state() string {
	w.t.Helper()
	ns := w.namespace()
	out := fmt.Sprintf("%s %v", ns.Status.Phase, ns.Spec.Finalizers)
	for _, c := range ns.Status.Conditions {
		if c.Status == v1.ConditionTrue {
			out += fmt.Sprintf("\n%s %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return out
}

func (w *cluster) want(what, want string) {
	w.t.Helper()
	if got := w.state(); got != want {
		w.t.Fatalf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

func (w *cluster) wantGone(what string, want ...string) {
	w.t.Helper()
	got := slices.Sorted(slices.Values(w.gone))
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s: deleted %v, want %v", what, got, want)
	}
}

var (
	pods       = v1.SchemeGroupVersion.WithResource("pods")
	configMaps = v1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = v1.SchemeGroupVersion.WithResource("secrets")
)

// Other objects are deleted only after the last pod is gone.
func TestPodsAreDeletedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"), "Pod/a", "Pod/b-held", "ConfigMap/c", "Secret/s", "Boat/x")
		// The informer shows the pod, too.
		if err := w.Fake.Tracker().Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b-held"}}); err != nil {
			t.Fatal(err)
		}
		w.run()
		w.wantGone("with a remaining pod", "pods/a")
		w.want("with a remaining pod", `Terminating [kubernetes]
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances`)
		after(10 * time.Minute)
		w.wantGone("ten minutes later", "pods/a")

		w.end(pods, "b-held")
		if err := w.Fake.CoreV1().Pods("shop").Delete(t.Context(), "b-held", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantGone("without pods", "boats/x", "configmaps/c", "pods/a", "pods/b-held", "secrets/s")
		if slices.Index(w.gone, "pods/b-held") != 1 {
			t.Errorf("deleted in the order %v", w.gone)
		}
		w.want("in the end", "Terminating []")
		for _, c := range w.namespace().Status.Conditions {
			if c.Status != v1.ConditionFalse {
				t.Errorf("%s is %s", c.Type, c.Status)
			}
		}
	})
}

// Pods that end one by one cause no sync before the last of them: each sync asks
// for all that remain.
func TestPodsThatEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"), "Pod/a-held", "Pod/b-held", "Pod/c-held", "Secret/s")
		shown := w.Fake.CoreV1().Pods("shop")
		for _, name := range []string{"a-held", "b-held", "c-held"} {
			if err := w.Fake.Tracker().Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		w.run()
		after(10 * time.Minute)
		for i, name := range []string{"a-held", "b-held", "c-held"} {
			before := len(w.asked)
			w.end(pods, name)
			if err := shown.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := len(w.asked) - before; i < 2 && n > 0 {
				t.Errorf("%d deletion requests after the end of %s", n, name)
			}
		}
		w.wantGone("without pods", "pods/a-held", "pods/b-held", "pods/c-held", "secrets/s")
	})
}

// What is being deleted is not asked for again, and what a sync writes in the namespace
// causes no other one. Thousands of pods that end would cause thousands of deletions each.
func TestObjectsAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"))
		add := func(name string, deleted *metav1.Time) {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Finalizers: []string{held}, DeletionTimestamp: deleted}}
			object.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Secret"))
			if err := w.objects.Tracker().Add(object); err != nil {
				t.Fatal(err)
			}
		}
		asked := func() (n int) {
			for _, request := range w.asked {
				if request == "delete-collection secrets" {
					n++
				}
			}
			return n
		}
		add("a-held", nil)
		w.run()
		if n := asked(); n != 1 {
			t.Errorf("the first sync asks for the Secrets %d times", n)
		}
		w.end(secrets, "a-held")
		now := metav1.Now()
		add("b-held", &now)
		before := asked()
		after(10 * time.Minute)
		if n := asked() - before; n > 0 {
			t.Errorf("a Secret that is being deleted is asked for %d times", n)
		}
		w.want("with a Secret", `Terminating [kubernetes]
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: secrets. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances`)
		add("c-held", nil)
		after(10 * time.Minute)
		if asked() == before {
			t.Error("a new Secret is not asked for")
		}
		w.end(secrets, "b-held")
		w.end(secrets, "c-held")
		after(2 * time.Minute)
		w.want("in the end", "Terminating []")
	})
}

// What is left after the last pod is looked at again soon, however long the pods took. Claims
// have a finalizer until no pod uses them.
func TestFinalizersThatEndAfterPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"), "Pod/a-held", "Secret/s-held")
		if err := w.Fake.Tracker().Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a-held"}}); err != nil {
			t.Fatal(err)
		}
		w.run()
		after(10 * time.Minute)
		w.end(pods, "a-held")
		if err := w.Fake.CoreV1().Pods("shop").Delete(t.Context(), "a-held", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.want("without pods", `Terminating [kubernetes]
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: secrets. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances`)
		w.end(secrets, "s-held")
		after(time.Second)
		w.want("a second later", "Terminating []")
	})
}

// Objects are deleted with deletecollection if the resource supports it, otherwise one by
// one. Only the resources that are not empty are deleted again.
func TestDeletionRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"), "Pod/a", "ConfigMap/c-held", "Secret/s", "Secret/t", "Boat/x", "Boat/y")
		w.fail["secrets"] = apierrors.NewMethodNotSupported(secrets.GroupResource(), "delete-collection")
		w.run()
		got := slices.Sorted(slices.Values(w.asked))
		// Pods are deleted once alone, and once with all other resources.
		want := []string{"delete boats", "delete boats", "delete secrets", "delete secrets",
			"delete-collection configmaps", "delete-collection pods", "delete-collection pods", "delete-collection secrets"}
		if got = slices.Compact(got); !slices.Equal(got, slices.Compact(want)) {
			t.Errorf("requests %q, want %q", got, want)
		}
		asked := len(w.asked)
		after(time.Minute)
		for _, a := range w.asked[asked:] {
			if !strings.HasSuffix(a, "configmaps") && !strings.HasSuffix(a, "secrets") {
				t.Errorf("repeated request: %s", a)
			}
		}
	})
}

func TestIgnoredNamespaces(t *testing.T) {
	for name, change := range map[string]func(ns *v1.Namespace){
		"not being deleted": func(ns *v1.Namespace) { ns.DeletionTimestamp = nil },
		"another finalizer": func(ns *v1.Namespace) { ns.Spec.Finalizers = []v1.FinalizerName{"example.com/other"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := namespace("kubernetes")
				change(ns)
				w := newCluster(t, ns, "Pod/a", "Secret/s")
				before := w.namespace().ResourceVersion
				w.run()
				after(time.Hour)
				if len(w.asked) > 0 || w.namespace().ResourceVersion != before {
					t.Errorf("requests %v, %s", w.asked, w.state())
				}
			})
		})
	}
}

// An empty namespace is gone at once and gets no conditions.
func TestEmptyNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"))
		w.run()
		w.want("empty", "Terminating []")
		if n := len(w.namespace().Status.Conditions); n != 0 {
			t.Errorf("%d conditions", n)
		}
	})
}

// The cache may still show a namespace that is gone and was made again. The content of the new one
// is not deleted.
func TestNamespaceMadeAgain(t *testing.T) {
	for name, change := range map[string]func(ns *v1.Namespace){
		"another UID":       func(ns *v1.Namespace) { ns.UID = "another" },
		"not being deleted": func(ns *v1.Namespace) { ns.DeletionTimestamp = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t, namespace("kubernetes"), "Pod/a", "Secret/s")
				again := w.namespace()
				change(again)
				w.Fake.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, again, nil })
				w.run()
				after(time.Hour)
				if len(w.asked) > 0 {
					t.Errorf("requests %v", w.asked)
				}
			})
		})
	}
}

// TestResourceThatIsNoLongerServed checks that a resource whose definition is deleted meanwhile
// keeps no namespace, and that its finalizer is removed after a conflict, too.
func TestResourceThatIsNoLongerServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"), "Secret/s")
		w.objects.PrependReactor("*", "boats", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
		})
		conflicts := 1
		w.Fake.PrependReactor("create", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "finalize" || conflicts == 0 {
				return false, nil, nil
			}
			conflicts--
			return true, nil, apierrors.NewConflict(v1.Resource("namespaces"), "shop", errors.New("changed"))
		})
		w.run()
		after(time.Minute)
		w.wantGone("in the end", "secrets/s")
		w.want("in the end", "Terminating []")
		if conflicts > 0 {
			t.Error("the namespace was not finalized")
		}
	})
}
