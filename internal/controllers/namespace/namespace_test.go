package namespace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster with the namespace shop and what is in it.
type world struct {
	*controllertest.Cluster
	t       *testing.T
	objects *metadatafake.FakeMetadataClient
	fail    map[string]error // of deletions, by resource
	gone    []string         // objects, in the order in which they went
	asked   []string         // deletions, in the order of the requests
}

// boats are served by an aggregated API server.
var boats = schema.GroupVersion{Group: "example.com", Version: "v1"}

// namespace is shop, being deleted.
func namespace(finalizers ...v1.FinalizerName) *v1.Namespace {
	return &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &metav1.Time{Time: time.Now()}},
		Spec:       v1.NamespaceSpec{Finalizers: finalizers},
	}
}

// held is the finalizer of objects whose names end in "-held".
const held = "example.com/held"

// newWorld makes a world with objects, each "kind/name". Its API deletes
// objects without finalizers at once.
func newWorld(t *testing.T, ns *v1.Namespace, objects ...string) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: controllertest.New(t, ns), t: t, objects: metadatafake.NewSimpleMetadataClient(scheme), fail: map[string]error{}}
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

// answer notes a deletion and returns how it ends.
func (w *world) answer(a clienttesting.Action) error {
	w.asked = append(w.asked, a.GetVerb()+" "+a.GetResource().Resource)
	return w.fail[a.GetResource().Resource]
}

func (w *world) delete(resource schema.GroupVersionResource, object metav1.Object) {
	if len(object.GetFinalizers()) == 0 && w.fail[resource.Resource] == nil {
		w.end(resource, object.GetName())
	}
}

// end lets an object go, whatever held it.
func (w *world) end(resource schema.GroupVersionResource, name string) {
	w.t.Helper()
	if err := w.objects.Tracker().Delete(resource, "shop", name); err != nil {
		w.t.Error(err)
	}
	w.gone = append(w.gone, resource.Resource+"/"+name)
}

func (w *world) run() {
	w.Run(controller.Descriptor{New: func(env *controller.Env) (controller.Controller, error) {
		return newNamespaces(env, w.objects, 10), nil
	}})
	synctest.Wait()
}

// after lets time pass.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

func (w *world) namespace() *v1.Namespace {
	w.t.Helper()
	ns, err := w.Fake.CoreV1().Namespaces().Get(w.t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ns
}

// state is a namespace's phase, finalizers and the conditions that are true.
func (w *world) state() string {
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

func (w *world) want(what, want string) {
	w.t.Helper()
	if got := w.state(); got != want {
		w.t.Fatalf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

func (w *world) wantGone(what string, want ...string) {
	w.t.Helper()
	got := slices.Sorted(slices.Values(w.gone))
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s: gone are %v, want %v", what, got, want)
	}
}

var (
	pods       = v1.SchemeGroupVersion.WithResource("pods")
	configMaps = v1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = v1.SchemeGroupVersion.WithResource("secrets")
)

// Pods go first: the rest waits until the last of them has ended, and is then
// emptied at once.
func TestPodsGoBeforeTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, namespace("kubernetes"), "Pod/a", "Pod/b-held", "ConfigMap/c", "Secret/s", "Boat/x")
		// the informer shows the pod too
		if err := w.Fake.Tracker().Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b-held"}}); err != nil {
			t.Fatal(err)
		}
		w.run()
		w.wantGone("with a pod that stays", "pods/a")
		w.want("with a pod that stays", `Terminating [kubernetes]
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
			t.Errorf("gone in the order %v", w.gone)
		}
		w.want("in the end", "Terminating []")
		for _, c := range w.namespace().Status.Conditions {
			if c.Status != v1.ConditionFalse {
				t.Errorf("%s is %s", c.Type, c.Status)
			}
		}
	})
}

// Where something does not go, the conditions say why, what can go does, and
// the namespace is tried again at most a minute after the reason has ended.
func TestConditions(t *testing.T) {
	discoveryFails := func(err error) func(w *world) (mend func()) {
		return func(w *world) func() {
			broken := true
			w.Fake.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
				if !broken {
					return false, nil, nil
				}
				return true, nil, err
			})
			all := w.Fake.Resources
			if discovery.IsGroupDiscoveryFailedError(err) {
				w.Fake.Resources = all[:1] // without boats
			}
			return func() { broken, w.Fake.Resources = false, all }
		}
	}
	for _, test := range []struct {
		about  string
		breaks func(w *world) (mend func())
		gone   []string
		want   string
	}{
		{
			"finalizers", func(w *world) func() {
				for _, o := range []struct {
					resource schema.GroupVersionResource
					kind     string
				}{{configMaps, "ConfigMap"}, {secrets, "Secret"}} {
					object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "h-held", Finalizers: []string{held}}}
					object.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(o.kind))
					if err := w.objects.Tracker().Add(object); err != nil {
						w.t.Fatal(err)
					}
				}
				return func() { w.end(configMaps, "h-held"); w.end(secrets, "h-held") }
			},
			[]string{"boats/x", "configmaps/c", "pods/a", "secrets/s"},
			`NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/held in 2 resource instances`,
		},
		{
			"a deletion that fails", func(w *world) func() {
				w.fail["secrets"] = apierrors.NewForbidden(secrets.GroupResource(), "", errors.New("no"))
				return func() { delete(w.fail, "secrets") }
			},
			[]string{"boats/x", "configmaps/c", "pods/a"},
			`NamespaceDeletionContentFailure ContentDeletionFailed: Failed to delete all resource types, 1 remaining: secrets is forbidden: no
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: secrets. has 1 resource instances`,
		},
		{
			"a group that is not discovered",
			discoveryFails(&discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{boats: errors.New("the server is currently unable to handle the request")}}),
			[]string{"configmaps/c", "pods/a", "secrets/s"},
			`NamespaceDeletionDiscoveryFailure DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: example.com/v1: the server is currently unable to handle the request`,
		},
		{
			"no discovery", discoveryFails(errors.New("out of order")), nil,
			`NamespaceDeletionDiscoveryFailure DiscoveryFailed: Discovery failed for some groups, 1 failing: out of order`,
		},
	} {
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, namespace("kubernetes", "example.com/other"), "Pod/a", "ConfigMap/c", "Secret/s", "Boat/x")
				mend := test.breaks(w)
				w.run()
				w.wantGone("at first", test.gone...)
				w.want("at first", "Terminating [kubernetes example.com/other]\n"+test.want)
				before := w.namespace()
				after(time.Hour)
				w.wantGone("an hour later", test.gone...)
				if now := w.namespace(); now.ResourceVersion != before.ResourceVersion {
					t.Error("the namespace is written though nothing has changed")
				}
				asked := len(w.asked)
				after(10 * time.Minute)
				if tries := len(w.asked) - asked; test.gone != nil && (tries < 9 || tries > 100) {
					t.Errorf("%d deletions in ten minutes", tries)
				}
				mend()
				after(time.Minute)
				w.want("mended", "Terminating [example.com/other]")
				if reasons := reasons(w.namespace()); reasons != "ResourcesDiscovered ParsedGroupVersions ContentDeleted ContentRemoved ContentHasNoFinalizers" {
					t.Errorf("mended: %s", reasons)
				}
			})
		})
	}
}

func reasons(ns *v1.Namespace) string {
	var out []string
	for _, c := range ns.Status.Conditions {
		out = append(out, c.Reason)
	}
	return strings.Join(out, " ")
}

// A condition keeps its time while only its message changes.
func TestTransitionTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, namespace("kubernetes"), "Secret/a-held", "Secret/b-held")
		w.run()
		since := func() time.Duration {
			for _, c := range w.namespace().Status.Conditions {
				if c.Type == v1.NamespaceContentRemaining {
					return time.Since(c.LastTransitionTime.Time)
				}
			}
			return -1
		}
		after(time.Hour)
		w.end(secrets, "a-held")
		after(time.Minute)
		w.want("with one left", `Terminating [kubernetes]
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: secrets. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances`)
		if got := since(); got != time.Hour+time.Minute {
			t.Errorf("remaining since %v", got)
		}
		w.end(secrets, "b-held")
		after(time.Minute)
		w.want("with none left", "Terminating []")
		if got := since(); got > time.Minute {
			t.Errorf("gone since %v", got)
		}
	})
}

// Collections are deleted at once where the resource can, else one object after
// the other. Only what is left is asked for again.
func TestHowContentIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, namespace("kubernetes"), "Pod/a", "ConfigMap/c-held", "Secret/s", "Secret/t", "Boat/x", "Boat/y")
		w.fail["secrets"] = apierrors.NewMethodNotSupported(secrets.GroupResource(), "delete-collection")
		w.run()
		got := slices.Sorted(slices.Values(w.asked))
		// pods are looked at once alone, and once with all others
		want := []string{"delete boats", "delete boats", "delete secrets", "delete secrets",
			"delete-collection configmaps", "delete-collection pods", "delete-collection pods", "delete-collection secrets"}
		if got = slices.Compact(got); !slices.Equal(got, slices.Compact(want)) {
			t.Errorf("asked %q, want %q", got, want)
		}
		asked := len(w.asked)
		after(time.Minute)
		for _, a := range w.asked[asked:] {
			if !strings.HasSuffix(a, "configmaps") && !strings.HasSuffix(a, "secrets") {
				t.Errorf("asked again to %s", a)
			}
		}
	})
}

func TestNamespacesThatAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(ns *v1.Namespace){
		"not being deleted":    func(ns *v1.Namespace) { ns.DeletionTimestamp = nil },
		"finalized by another": func(ns *v1.Namespace) { ns.Spec.Finalizers = []v1.FinalizerName{"example.com/other"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := namespace("kubernetes")
				change(ns)
				w := newWorld(t, ns, "Pod/a", "Secret/s")
				before := w.namespace().ResourceVersion
				w.run()
				after(time.Hour)
				if len(w.asked) > 0 || w.namespace().ResourceVersion != before {
					t.Errorf("asked to %v, %s", w.asked, w.state())
				}
			})
		})
	}
}

// A namespace that is empty at once gets no conditions, which nobody would see.
func TestAnEmptyNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, namespace("kubernetes"))
		w.run()
		w.want("empty", "Terminating []")
		if n := len(w.namespace().Status.Conditions); n != 0 {
			t.Errorf("%d conditions", n)
		}
	})
}
