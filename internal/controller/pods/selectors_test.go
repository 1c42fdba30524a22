package pods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/costtest"
)

// indexOf returns an informer that has objects, with an index. It does not run.
func indexOf[T runtime.Object](t *testing.T, name string, keys cache.IndexFunc, objects ...T) cache.SharedIndexInformer {
	t.Helper()
	var kind T
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, kind, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, name: keys})
	for _, o := range objects {
		if err := informer.GetIndexer().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	return informer
}

func labelledPod(namespace, name string, podLabels map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1", Labels: podLabels}}
}

func serviceOf(namespace, name string, selector map[string]string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{Selector: selector}}
}

func TestSelected(t *testing.T) {
	informer := indexOf(t, ByLabel, LabelKeys,
		labelledPod("a", "web-1", map[string]string{"app": "web", "tier": "front"}),
		labelledPod("a", "web-2", map[string]string{"app": "web", "tier": "back"}),
		labelledPod("a", "db", map[string]string{"app": "db", "tier": "back"}),
		labelledPod("a", "plain", nil),
		labelledPod("b", "web-1", map[string]string{"app": "web", "tier": "front"}),
	)
	for selector, want := range map[string]string{
		"":                              "db plain web-1 web-2",
		"app=web":                       "web-1 web-2",
		"app==web,tier=back":            "web-2",
		"app in (web,db),tier!=front":   "db web-2",
		"app in (web,web)":              "web-1 web-2",
		"tier":                          "db web-1 web-2",
		"app!=web":                      "db plain",
		"app notin (db,web)":            "plain",
		"!app":                          "plain",
		"app=cache":                     "",
		"app=web,tier notin (front, x)": "web-2",
	} {
		s, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		found, err := Selected(informer, "a", s)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range found {
			if p.Namespace != "a" {
				t.Errorf("%q selects a pod of namespace %s", selector, p.Namespace)
			}
			names = append(names, p.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q selects %q, want %q", selector, got, want)
		}
	}
	if found, err := Selected(informer, "a", labels.Nothing()); err != nil || len(found) > 0 {
		t.Errorf("nothing selects %v, %v", found, err)
	}
	// The values of a LabelSelector may be there twice.
	twice, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"db", "web", "db"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := Selected(informer, "a", twice); err != nil || len(found) != 3 {
		t.Errorf("values that are there twice select %v, %v", found, err)
	}
}

// A pod counts once although its label changes while pods are selected.
func TestPodChangesMeanwhile(t *testing.T) {
	informer := &controllertest.Changing{
		SharedIndexInformer: indexOf(t, ByLabel, LabelKeys, labelledPod("a", "p", map[string]string{"app": "db"})),
		Change: func(content cache.Indexer) {
			if err := content.Update(labelledPod("a", "p", map[string]string{"app": "web"})); err != nil {
				t.Error(err)
			}
		},
	}
	selector, err := labels.Parse("app in (db,web)")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := Selected(informer, "a", selector); err != nil || len(found) != 1 {
		t.Errorf("%d pods are selected, want 1: %v", len(found), err)
	}
}

// The keys of a selector are the same each time, because an index removes what it has added. The
// requirements of one label are in any order if there are many.
func TestSelectorKeysStay(t *testing.T) {
	many := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := range 20 {
		many.MatchLabels[fmt.Sprint("label-", i)] = "x"
		many.MatchExpressions = append(many.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", fmt.Sprint("other-", i)},
		})
	}
	want := []string{"a/app=other-0", "a/app=web"}
	for range 100 {
		selector, err := metav1.LabelSelectorAsSelector(many)
		if err != nil {
			t.Fatal(err)
		}
		if got := SelectorKeys("a", selector); !slices.Equal(got, want) {
			t.Fatalf("keys %q, want %q", got, want)
		}
	}
}

// counting counts the pods that a selector is asked about.
type counting struct {
	labels.Selector
	asked *int
}

// Matches implements labels.Selector.
func (c counting) Matches(l labels.Labels) bool {
	*c.asked++
	return c.Selector.Matches(l)
}

// The pods of other workloads cost nothing, and neither do the other Services.
func TestOthersCostNothing(t *testing.T) {
	const others = 1000
	var all []*v1.Pod
	var services []*v1.Service
	for i := range others {
		app := map[string]string{"app": fmt.Sprint("web-", i)}
		all = append(all, labelledPod("a", fmt.Sprint("web-", i), app))
		services = append(services, serviceOf("a", fmt.Sprint("web-", i), app))
	}
	mine := map[string]string{"app": "web-7"}
	asked := 0
	found, err := Selected(indexOf(t, ByLabel, LabelKeys, all...), "a", counting{labels.SelectorFromSet(mine), &asked})
	if err != nil || len(found) != 1 || asked != 1 {
		t.Errorf("%d pods are found, and %d examined: %v", len(found), asked, err)
	}
	candidates, err := MaySelect[*v1.Service](indexOf(t, BySelector, serviceKeys, services...), "a", mine)
	if err != nil || len(candidates) != 1 {
		t.Errorf("%d Services are examined: %v", len(candidates), err)
	}
}

// Labels and values that a user makes up by the hundred thousand take no room in the indexes.
// What has them is found all the same.
func TestManyLabels(t *testing.T) {
	many, values := map[string]string{"app": "web"}, []string{"web"}
	for i := range mostKeys {
		many[fmt.Sprint("label-", i)] = "x"
		values = append(values, fmt.Sprint("other-", i))
	}
	crowded := labelledPod("a", "crowded", many)
	if keys, err := LabelKeys(crowded); err != nil || len(keys) != 1 {
		t.Errorf("a pod with many labels has %d keys: %v", len(keys), err)
	}
	anyOf, err := labels.NewRequirement("app", selection.In, values)
	if err != nil {
		t.Fatal(err)
	}
	if keys := SelectorKeys("a", labels.NewSelector().Add(*anyOf)); len(keys) != 1 {
		t.Errorf("a selector with many values has %d keys", len(keys))
	}
	informer := indexOf(t, ByLabel, LabelKeys, crowded, labelledPod("b", "crowded", many),
		labelledPod("a", "usual", map[string]string{"app": "web"}), labelledPod("a", "other", map[string]string{"app": "other"}))
	for name, selector := range map[string]labels.Selector{
		"a label": labels.SelectorFromSet(labels.Set{"app": "web"}), "that of a Service": labels.ValidatedSetSelector{"app": "web"},
		"one of many values": labels.NewSelector().Add(*anyOf),
	} {
		found, err := Selected(informer, "a", selector)
		if err != nil || len(found) != 2 {
			t.Errorf("%s: %d pods are selected, want 2: %v", name, len(found), err)
		}
	}
	services := indexOf(t, BySelector, serviceKeys,
		serviceOf("a", "web", map[string]string{"app": "web"}), serviceOf("a", "all-labels", many), serviceOf("a", "other", map[string]string{"app": "other"}),
		serviceOf("a", "manual", nil), serviceOf("b", "web", map[string]string{"app": "web"}),
	)
	if found := servicesOf(services, nil, crowded); len(found) != 2 {
		t.Errorf("the Services %v select a pod with many labels, want two", sets.List(keysOf(found)))
	}
}

// keysOf returns keys as texts.
func keysOf(found sets.Set[controller.Key]) sets.Set[string] {
	texts := sets.Set[string]{}
	for key := range found {
		texts.Insert(key.String())
	}
	return texts
}

// A pod's change takes no memory for each label that Services select by, and neither does a
// Service's.
func TestLargeSelectors(t *testing.T) {
	large := map[string]string{"app": "web"}
	for i := range 100_000 {
		large[fmt.Sprint("label-", i)] = "x"
	}
	var all []*v1.Service
	for i := range 10 {
		all = append(all, serviceOf("a", fmt.Sprint("web-", i), large))
	}
	pod := labelledPod("a", "p", map[string]string{"app": "web"})
	services, informer := indexOf(t, BySelector, serviceKeys, all...), indexOf(t, ByLabel, LabelKeys, pod)
	const most = 1 << 20 // bytes
	cost := costtest.Of(t, func() {
		if found := servicesOf(services, nil, pod); len(found) > 0 {
			t.Errorf("%d Services select a pod without their labels", len(found))
		}
	})
	if cost.Bytes > most {
		t.Errorf("a pod's change takes %d bytes", cost.Bytes)
	}
	cost = costtest.Of(t, func() {
		if found, err := Selected(informer, "a", SelectorOf(all[0])); err != nil || len(found) > 0 {
			t.Errorf("a pod without the labels of a Service is selected: %v", err)
		}
	})
	if cost.Bytes > most {
		t.Errorf("a Service's change takes %d bytes", cost.Bytes)
	}
}

func TestServicesOfPod(t *testing.T) {
	services := indexOf(t, BySelector, serviceKeys,
		serviceOf("a", "web", map[string]string{"app": "web"}),
		serviceOf("a", "front", map[string]string{"app": "web", "tier": "front"}),
		serviceOf("a", "back", map[string]string{"tier": "back"}),
		serviceOf("a", "all", map[string]string{}),
		serviceOf("a", "manual", nil),
		serviceOf("b", "web", map[string]string{"app": "web"}),
	)
	front := labelledPod("a", "p", map[string]string{"app": "web", "tier": "front"})
	back := labelledPod("a", "p", map[string]string{"app": "web", "tier": "back"})
	back.ResourceVersion = "2"
	ready := front.DeepCopy()
	ready.ResourceVersion = "2"
	ready.Status = v1.PodStatus{PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	moved := ready.DeepCopy()
	moved.Labels = back.Labels
	annotated := front.DeepCopy()
	annotated.ResourceVersion, annotated.Annotations = "2", map[string]string{"a": "b"}
	for _, c := range []struct {
		name     string
		old, new *v1.Pod
		want     string
	}{
		{"a new pod", nil, front, "a/all a/front a/web"},
		{"a deleted pod", back, nil, "a/all a/back a/web"},
		{"a change that no endpoint shows", front, annotated, ""},
		{"a pod that becomes ready", front, ready, "a/all a/front a/web"},
		{"another label", front, back, "a/back a/front"},
		{"another label, and ready", front, moved, "a/all a/back a/front a/web"},
		{"another namespace", nil, labelledPod("b", "p", back.Labels), "b/web"},
		{"without labels", nil, labelledPod("a", "p", nil), "a/all"},
	} {
		var names []string
		for key := range servicesOf(services, c.old, c.new) {
			names = append(names, key.String())
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSlicesOf(t *testing.T) {
	slice := func(namespace, name, service, managedBy string) *discovery.EndpointSlice {
		return &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			discovery.LabelServiceName: service, discovery.LabelManagedBy: managedBy,
		}}}
	}
	informer := indexOf(t, ByService, SliceKeys,
		slice("a", "1", "web", "me"), slice("a", "2", "web", "me"), slice("a", "3", "web", "another"),
		slice("a", "4", "db", "me"), slice("a", "5", "", "me"), slice("b", "1", "web", "me"),
	)
	found, err := SlicesOf(informer, controller.Key{Namespace: "a", Name: "web"}, "me")
	if err != nil {
		t.Fatal(err)
	}
	names := sets.Set[string]{}
	for _, s := range found {
		names.Insert(s.Namespace + "/" + s.Name)
	}
	if !names.Equal(sets.New("a/1", "a/2")) {
		t.Errorf("slices %v", sets.List(names))
	}
}
