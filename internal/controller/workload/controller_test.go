package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/costtest"
)

// server is an API server with one DaemonSet.
type server struct {
	set       *apps.DaemonSet
	conflicts int // number of updates to reject
	reads     int
	written   []*apps.DaemonSet
}

func (s *server) Get(context.Context, string, metav1.GetOptions) (*apps.DaemonSet, error) {
	s.reads++
	if s.set == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "daemonsets"}, "a")
	}
	return s.set, nil
}

func (s *server) UpdateStatus(_ context.Context, set *apps.DaemonSet, _ metav1.UpdateOptions) (*apps.DaemonSet, error) {
	if s.conflicts > 0 {
		s.conflicts--
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "daemonsets"}, set.Name, errors.New("changed"))
	}
	if s.set == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "daemonsets"}, "a")
	}
	s.written = append(s.written, set)
	return set, nil
}

func daemonSet(name string) *apps.DaemonSet {
	return &apps.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       apps.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}
}

// pod returns a pod with a label and, if owner is not empty, a controlling owner.
func pod(name, owner, label string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": label}}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: owner, UID: types.UID(owner), Controller: new(true)}}
	}
	return p
}

// build returns a controller of DaemonSets whose informers hold objects.
func build(t *testing.T, config Config[*apps.DaemonSet, *v1.Pod], s *server, objects ...metav1.Object) *Controller[*apps.DaemonSet, *v1.Pod] {
	t.Helper()
	config.Kind = apps.SchemeGroupVersion.WithKind("DaemonSet")
	config.Owners = cache.NewSharedIndexInformer(&cache.ListWatch{}, &apps.DaemonSet{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	config.Dependents = cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Pod{}, 0, cache.Indexers{})
	config.Selector = func(set *apps.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector }
	config.Client = func(string) Client[*apps.DaemonSet] { return s }
	c, err := New(&controller.Env{}, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		store := config.Dependents.GetIndexer()
		if _, ok := o.(*apps.DaemonSet); ok {
			store = config.Owners.GetIndexer()
		}
		if err := store.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// A pod without an owner takes no memory for each requirement of those that may adopt it: it
// can change its labels all the time.
func TestAdoptersWithLargeSelectors(t *testing.T) {
	large := daemonSet("large")
	for i := range 100_000 {
		large.Spec.Selector.MatchExpressions = append(large.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprint("label-", i), Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	large.Spec.Selector.MatchLabels = nil
	all := daemonSet("all")
	all.Spec.Selector = &metav1.LabelSelector{}
	none := daemonSet("none")
	none.Spec.Selector = nil
	c := build(t, Config[*apps.DaemonSet, *v1.Pod]{}, &server{}, large, daemonSet("own"), daemonSet("other"), all, none)
	var names []string
	cost := costtest.Of(t, func() {
		for _, adopter := range c.Adopters(pod("p", "", "own")) {
			names = append(names, adopter.Name)
		}
	})
	if slices.Sort(names); !slices.Equal(names, []string{"large", "own"}) {
		t.Errorf("%v may adopt the pod", names)
	}
	if cost.Bytes > 1<<20 {
		t.Errorf("to find them takes %d bytes", cost.Bytes)
	}
}

func TestDependentChangedEnqueuesOwners(t *testing.T) {
	at := func(version string, p *v1.Pod) *v1.Pod { p.ResourceVersion = version; return p }
	deleted := func(p *v1.Pod) *v1.Pod {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		return p
	}
	foreign := pod("p", "a", "")
	foreign.OwnerReferences[0].APIVersion = "example.com/v1"
	for _, test := range []struct {
		about    string
		old, new *v1.Pod
		want     string
	}{
		{"added", nil, pod("p", "a", "a"), "a; created"},
		{"a resync", at("1", pod("p", "a", "a")), at("1", pod("p", "a", "a")), ""},
		{"changed", at("1", pod("p", "a", "a")), at("2", pod("p", "a", "a")), "a"},
		{"being deleted", at("1", pod("p", "a", "a")), at("2", deleted(pod("p", "a", "a"))), "a; deleted"},
		{"gone", pod("p", "a", "a"), nil, "a; deleted"},
		{"owner changed", at("1", pod("p", "a", "a")), at("2", pod("p", "b", "a")), "a b"},
		{"released", at("1", pod("p", "a", "a")), at("2", pod("p", "", "b")), "a b"},
		{"an orphan", nil, pod("p", "", "a"), "a"},
		{"an orphan with a new label", at("1", pod("p", "", "a")), at("2", pod("p", "", "b")), "b"},
		{"an orphan with a new status", at("1", pod("p", "", "a")), at("2", pod("p", "", "a")), ""},
		{"an orphan without a matching owner", nil, pod("p", "", "x"), ""},
		{"an orphan of an owner being deleted", nil, pod("p", "", "c"), ""},
		{"owned by a kind of another group", nil, foreign, ""},
	} {
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var synced []string
				got := ""
				expected := newExpectations()
				leaving := daemonSet("c")
				leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				c := build(t, Config[*apps.DaemonSet, *v1.Pod]{
					Sync: func(_ context.Context, set *apps.DaemonSet) error {
						synced = append(synced, set.Name)
						return nil
					},
					Expectations: expected,
				}, &server{}, daemonSet("a"), daemonSet("b"), leaving)
				expected.ExpectCreations("a", 1)
				expected.ExpectDeletions("a", "p")
				c.dependentChanged(test.old, test.new)
				if expected.owners["a"].creations == 0 {
					got += "; created"
				}
				if len(expected.owners["a"].deletions) == 0 {
					got += "; deleted"
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.Queue.Workers(1)(ctx) }()
				synctest.Wait()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				slices.Sort(synced)
				if got = strings.Join(synced, " ") + got; got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

// The expectations of an owner that is deleted are dropped.
func TestDeletedOwner(t *testing.T) {
	var gone []string
	expected := newExpectations()
	c := build(t, Config[*apps.DaemonSet, *v1.Pod]{
		Sync:         func(context.Context, *apps.DaemonSet) error { return errors.New("synced") },
		OwnerGone:    func(_ context.Context, key controller.Key) error { gone = append(gone, key.String()); return nil },
		Expectations: expected,
	}, &server{})
	expected.ExpectCreations("a", 1)
	c.ownerChanged(daemonSet("a"), nil)
	if !expected.Satisfied("a") || c.Queue.Len() != 1 {
		t.Errorf("satisfied: %v, %d keys", expected.Satisfied("a"), c.Queue.Len())
	}
	if err := c.sync(t.Context(), controller.Key{Namespace: "ns", Name: "a"}); err != nil || fmt.Sprint(gone) != "[ns/a]" {
		t.Error(gone, err)
	}
}

func TestClaim(t *testing.T) {
	owner := func(change func(*apps.DaemonSet)) *apps.DaemonSet {
		set := daemonSet("a")
		change(set)
		return set
	}
	same := daemonSet("a")
	dead := func(set *apps.DaemonSet) { set.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	ending := pod("ending", "", "a")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	elsewhere := pod("elsewhere", "", "a")
	elsewhere.Namespace = "other"
	fails := func(err error) map[string]error { return map[string]error{"p": err} }
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
	for _, test := range []struct {
		about   string
		owner   *apps.DaemonSet // as cached
		live    *apps.DaemonSet // as the API server has it
		pods    []*v1.Pod
		patches map[string]error // that fail
		want    string           // by name: errors of patches
		reads   int
	}{
		{"already owned", same, same, []*v1.Pod{pod("p", "a", "a")}, nil, "p; ; <nil>", 0},
		{"owned by another", same, same, []*v1.Pod{pod("p", "b", "a")}, nil, "; ; <nil>", 0},
		{"adopted", same, same, []*v1.Pod{pod("p", "", "a"), pod("q", "", "a")}, nil, "p q; p=adopt q=adopt; <nil>", 1},
		{"not matched", same, same, []*v1.Pod{pod("p", "", "x")}, nil, "; ; <nil>", 0},
		{"excluded", same, same, []*v1.Pod{pod("excluded", "", "a")}, nil, "; ; <nil>", 0},
		{"released", same, same, []*v1.Pod{pod("p", "a", "x")}, nil, "; p=release; <nil>", 0},
		{"orphans being deleted", same, same, []*v1.Pod{ending}, nil, "; ; <nil>", 0},
		{"in another namespace", same, same, []*v1.Pod{elsewhere}, nil, "; ; <nil>", 0},
		{"by an owner being deleted", owner(dead), owner(dead), []*v1.Pod{pod("p", "", "a"), pod("q", "a", "x"), pod("r", "a", "a")}, nil, "r; ; <nil>", 0},
		{"by an owner that was just deleted", same, owner(dead), []*v1.Pod{pod("p", "", "a")}, nil,
			"; ; can't adopt ns/p: ns/a has just been deleted at " + metav1.Time{Time: time.Unix(1, 0)}.String(), 1},
		{"by an owner that was just replaced", same, owner(func(set *apps.DaemonSet) { set.UID = "new" }), []*v1.Pod{pod("p", "", "a")}, nil,
			"; ; can't adopt ns/p: original DaemonSet ns/a is gone: got uid new, wanted a", 1},
		{"deleted before adoption", same, same, []*v1.Pod{pod("p", "", "a")}, fails(notFound), "; p=adopt; <nil>", 1},
		{"deleted before release", same, same, []*v1.Pod{pod("p", "a", "x")}, fails(notFound), "; p=release; <nil>", 0},
		{"adoption fails", same, same, []*v1.Pod{pod("p", "", "a"), pod("q", "", "a")}, fails(errors.New("no")), "q; p=adopt q=adopt; no", 1},
	} {
		t.Run(test.about, func(t *testing.T) {
			var patches []string
			s := &server{set: test.live}
			c := build(t, Config[*apps.DaemonSet, *v1.Pod]{
				Matches:    func(_ *apps.DaemonSet, p *v1.Pod) bool { return p.Name != "excluded" },
				Finalizers: []string{"example.com/tracked"},
				Patch: func(_ context.Context, p *v1.Pod, patch []byte) error {
					adopted := fmt.Sprintf(`{"metadata":{"finalizers":["example.com/tracked"],"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"a","uid":"a","controller":true,"blockOwnerDeletion":true}],"uid":%q}}`, p.UID)
					released := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"a"}],"uid":%q}}`, p.UID)
					patches = append(patches, p.Name+"="+map[string]string{adopted: "adopt", released: "release"}[string(patch)])
					return test.patches[p.Name]
				},
			}, s)
			for _, p := range test.pods {
				if err := c.config.Dependents.GetIndexer().Add(p); err != nil {
					t.Fatal(err)
				}
			}
			claimed, err := c.Claim(t.Context(), test.owner)
			var names []string
			for _, p := range claimed {
				names = append(names, p.Name)
			}
			slices.Sort(names)
			slices.Sort(patches)
			if got := fmt.Sprintf("%s; %s; %v", strings.Join(names, " "), strings.Join(patches, " "), err); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if s.reads != test.reads {
				t.Errorf("the owner was read %d times, want %d", s.reads, test.reads)
			}
		})
	}
}

func TestUpdateStatus(t *testing.T) {
	newer := daemonSet("a")
	newer.ResourceVersion = "2"
	replaced := daemonSet("a")
	replaced.UID = "another"
	for _, test := range []struct {
		about     string
		live      *apps.DaemonSet
		conflicts int
		written   string // versions
		fails     bool
	}{
		{"without a conflict", daemonSet("a"), 0, "[1]", false},
		{"after a conflict", newer, 1, "[2]", false},
		{"the owner was replaced", replaced, 1, "[]", false},
		{"the owner was deleted", nil, 0, "[]", false},
		{"the owner was deleted after a conflict", nil, 1, "[]", false},
		{"repeated conflicts", newer, 2, "[]", true},
	} {
		t.Run(test.about, func(t *testing.T) {
			s := &server{set: test.live, conflicts: test.conflicts}
			c := build(t, Config[*apps.DaemonSet, *v1.Pod]{}, s)
			cached := daemonSet("a")
			cached.ResourceVersion = "1"
			err := c.UpdateStatus(t.Context(), cached, func(set *apps.DaemonSet) { set.Status.NumberReady = 3 })
			if (err != nil) != test.fails {
				t.Error(err)
			}
			versions := []string{}
			for _, set := range s.written {
				versions = append(versions, set.ResourceVersion)
				if set.Status.NumberReady != 3 {
					t.Error(set.Status)
				}
			}
			if fmt.Sprint(versions) != test.written {
				t.Errorf("written %v, want %s", versions, test.written)
			}
			if cached.Status.NumberReady != 0 {
				t.Error("the cached object was changed")
			}
		})
	}
}

// An owner is synced again once its expectations have timed out, even without
// an event, because the watch may have missed the expected changes.
func TestLostEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expected := newExpectations()
		start := time.Now()
		var satisfied []time.Duration
		c := build(t, Config[*apps.DaemonSet, *v1.Pod]{
			Sync: func(context.Context, *apps.DaemonSet) error {
				if expected.Satisfied("a") {
					satisfied = append(satisfied, time.Since(start).Truncate(time.Second))
					expected.ExpectCreations("a", 1)
				}
				return nil
			},
			Expectations: expected,
		}, &server{}, daemonSet("a"))
		c.Queue.Add(controller.Key{Namespace: "ns", Name: "a"})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Queue.Workers(1)(ctx) }()
		time.Sleep(2*expectationTimeout + time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []time.Duration{0, expectationTimeout, 2 * expectationTimeout}; !slices.Equal(satisfied, want) {
			t.Errorf("may act at %v, want %v", satisfied, want)
		}
	})
}

// A controller that depends on its own status waits until the cache shows it.
func TestOwnStatusIsRead(t *testing.T) {
	synced, skips := 0, NewSkips("daemonset_controller", "DaemonSet")
	cached := daemonSet("a")
	cached.ResourceVersion = "4"
	c := build(t, Config[*apps.DaemonSet, *v1.Pod]{
		Sync:        func(context.Context, *apps.DaemonSet) error { synced++; return nil },
		ReadsStatus: true, Skips: skips,
	}, &server{set: cached}, cached)
	key := controller.Key{Namespace: "ns", Name: "a"}
	sync := func(want error, total int) {
		t.Helper()
		if err := c.sync(t.Context(), key); !errors.Is(err, want) || synced != total {
			t.Errorf("%v, %d syncs; want %v, %d", err, synced, want, total)
		}
	}
	sync(nil, 1)
	if err := c.UpdateStatus(t.Context(), cached, func(set *apps.DaemonSet) { set.ResourceVersion = "5" }); err != nil {
		t.Fatal(err)
	}
	sync(controller.ErrStale, 1)
	if n := testutil.ToFloat64(skips.WithLabelValues("apps", "daemonsets")); n != 1 {
		t.Errorf("%v skips are counted, want 1", n)
	}
	shown := daemonSet("a")
	shown.ResourceVersion = "6"
	if err := c.config.Owners.GetIndexer().Update(shown); err != nil {
		t.Fatal(err)
	}
	sync(nil, 2)
	if err := c.UpdateStatus(t.Context(), shown, func(set *apps.DaemonSet) { set.ResourceVersion = "7" }); err != nil {
		t.Fatal(err)
	}
	if err := c.config.Owners.GetIndexer().Delete(shown); err != nil {
		t.Fatal(err)
	}
	sync(nil, 2)
	if len(c.written) > 0 {
		t.Errorf("versions of owners that are gone: %v", c.written)
	}
}
