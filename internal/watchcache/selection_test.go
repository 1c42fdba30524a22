package watchcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// countingSelector matches nothing and counts its calls.
type countingSelector struct{ calls *int }

func (s countingSelector) Matches(labels.Labels) bool {
	*s.calls++
	return false
}

// TestSearchEndsWithItsRequest checks that Visit ends soon after its context is
// canceled.
func TestSearchEndsWithItsRequest(t *testing.T) {
	resources := all.All()
	maps := resources[slices.IndexFunc(resources, func(r *resource.Resource) bool { return r.Plural == "configmaps" })]
	cache := New(mem.New(), resources)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cache.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-cache.Synced()
	kind := cache.Kind(maps)
	for i := range 10 * visitsPerContextCheck {
		m := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)}}
		if _, err := kind.Create(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cache.Fresh(ctx); err != nil {
		t.Fatal(err)
	}
	canceled, cancelNow := context.WithCancel(ctx)
	cancelNow()
	calls := 0
	s := Selection{resource: maps, labels: countingSelector{&calls}}
	if err := s.Visit(canceled, kind.Snapshot(), Position{}, func(*Entry) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("the search ended with %v", err)
	}
	if calls > visitsPerContextCheck {
		t.Errorf("%d objects were visited", calls)
	}
}

// TestOptimizedSelectors checks that optimized selectors match the same objects
// as the originals.
func TestOptimizedSelectors(t *testing.T) {
	var values []string
	for i := range 100 {
		values = append(values, fmt.Sprintf("v%d", i))
	}
	many := "(" + strings.Join(values, ",") + ")"
	for _, text := range []string{"a in " + many, "a notin " + many, "a in " + many + ",b", "!b,a notin " + many, "a in " + many + ",n>3", "a=v1,b notin " + many} {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		optimized := optimize(selector)
		if _, ok := optimized.(allOf); !ok {
			t.Errorf("%.20s… is not optimized", text)
		}
		for _, set := range []labels.Set{nil, {"a": "v1"}, {"a": "v1", "b": "v2"}, {"a": "other"}, {"a": "v99", "b": "", "n": "4"}, {"b": "v5"}, {"a": "v1", "n": "x"}} {
			if got, want := optimized.Matches(set), selector.Matches(set); got != want {
				t.Errorf("%.20s… of %v: %v, want %v", text, set, got, want)
			}
		}
	}
}

// TestEventFor checks which event a watcher with a selector gets for a change: an
// object that starts to match is added, and one that stops to match is deleted.
func TestEventFor(t *testing.T) {
	r := all.All()[slices.IndexFunc(all.All(), func(r *resource.Resource) bool { return r.Plural == "pods" })]
	pod := func(namespace, node string) *Entry {
		return &Entry{Object: &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}, Namespace: namespace, Name: "p"}
	}
	s := NewSelection(r, "default", nil, fields.OneTermEqualSelector("spec.nodeName", "n1"))
	if scope := s.Scope(); scope != (Scope{Field: "spec.nodeName", Value: "n1"}) {
		t.Errorf("%+v", scope)
	}
	for name, test := range map[string]struct {
		event Event
		want  EventType
		left  bool
	}{
		"comes":             {Event{Type: Added, Entry: pod("default", "n1")}, Added, false},
		"comes elsewhere":   {Event{Type: Added, Entry: pod("default", "n2")}, 0, false},
		"another namespace": {Event{Type: Added, Entry: pod("other", "n1")}, 0, false},
		"is bound":          {Event{Type: Modified, Entry: pod("default", "n1"), Previous: pod("default", "")}, Added, false},
		"changes":           {Event{Type: Modified, Entry: pod("default", "n1"), Previous: pod("default", "n1")}, Modified, false},
		"leaves":            {Event{Type: Modified, Entry: pod("default", "n2"), Previous: pod("default", "n1")}, Deleted, true},
		"goes":              {Event{Type: Deleted, Entry: pod("default", "n1"), Previous: pod("default", "n1")}, Deleted, false},
		"goes elsewhere":    {Event{Type: Deleted, Entry: pod("default", "n2"), Previous: pod("default", "n2")}, 0, false},
	} {
		if what, left := s.EventFor(&test.event); what != test.want || left != test.left {
			t.Errorf("%s: %d, left %t", name, what, left)
		}
	}
}

// Watches of all kinds of scopes get the events of what they select, and their logs hold these
// events. A pod is namespace/name, "+" after it is a change, and "@" gives it a node.
func TestEventsOfSelections(t *testing.T) {
	pods := all.All()[slices.IndexFunc(all.All(), func(r *resource.Resource) bool { return r.Plural == "pods" })]
	for _, c := range []struct{ namespace, fields, puts, want string }{
		{"", "", "one/a two/b one/a+ two/b+", "ADDED one/a, ADDED two/b, MODIFIED one/a, MODIFIED two/b"},
		{"", "metadata.namespace=one", "one/a two/a one/a+ two/a+", "ADDED one/a, MODIFIED one/a"},
		{"", "spec.nodeName=n1", "one/a two/b one/a@n1 two/b@n1", "ADDED one/a, ADDED two/b"},
		{"", "spec.nodeName!=n1", "one/a one/b one/a+ one/a@n1", "ADDED one/a, ADDED one/b, MODIFIED one/a, DELETED one/a"},
		{"", "metadata.name=a", "one/a two/a one/b one/a+ one/a@n1", "ADDED one/a, ADDED two/a, MODIFIED one/a, MODIFIED one/a"},
		{"", "metadata.name=a,metadata.namespace=one", "one/a one/b two/a one/a+ one/a@n1", "ADDED one/a, MODIFIED one/a, MODIFIED one/a"},
		{"", "metadata.name=a,spec.nodeName=n1", "one/a one/a+ one/a@n1", "ADDED one/a"},
		{"", "metadata.name=a,spec.nodeName!=n1", "one/a one/b one/a+ one/a@n1 one/a@n2", "ADDED one/a, MODIFIED one/a, DELETED one/a, ADDED one/a"},
		{"one", "", "one/a two/a one/b one/a+ two/a+", "ADDED one/a, ADDED one/b, MODIFIED one/a"},
		{"one", "metadata.namespace=one", "one/a two/a one/a+", "ADDED one/a, MODIFIED one/a"},
		{"one", "metadata.namespace=two", "one/a two/a one/a+ two/a+", ""},
		{"one", "spec.nodeName=n2", "one/a one/a@n1 two/a@n2 one/a@n2", "ADDED one/a"},
		{"two", "spec.nodeName!=n1", "one/a two/a two/a@n1 two/a@n2", "ADDED two/a, DELETED two/a, ADDED two/a"},
		{"one", "metadata.name=a", "one/a one/b one/a+ one/a@n1", "ADDED one/a, MODIFIED one/a, MODIFIED one/a"},
		{"one", "metadata.name=b,metadata.namespace=one", "one/a one/b one/a+ one/b@n1", "ADDED one/b, MODIFIED one/b"},
		{"one", "metadata.name=a,metadata.namespace=one,spec.nodeName=n1", "one/a one/b two/a one/a+ one/a@n1", "ADDED one/a"},
		{"one", "metadata.name=b,metadata.namespace=one,spec.nodeName!=n1", "one/a two/b one/b one/b+ one/b@n1", "ADDED one/b, MODIFIED one/b, DELETED one/b"},
	} {
		selected := NewSelection(pods, c.namespace, nil, fields.ParseSelectorOrDie(c.fields))
		scope, limited := selected.Scope().key(pods.FieldSelectors.Indexed)
		current := map[string]*Entry{}
		var got []string
		for i, text := range strings.Fields(c.puts) {
			key, node, _ := strings.Cut(text, "@")
			key, changed := strings.CutSuffix(key, "+")
			namespace, name, _ := strings.Cut(key, "/")
			p := &corev1.Pod{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node},
			}
			if changed {
				p.Status.Phase = corev1.PodRunning
			}
			e := &Event{Type: Added, Entry: newEntry(pods, p, Position{Namespace: namespace, Name: name}, int64(i+1), 0), Previous: current[key]}
			if e.Previous != nil {
				e.Type = Modified
			}
			current[key] = e.Entry
			what, _ := selected.EventFor(e)
			if what == 0 {
				continue
			}
			got = append(got, what.String()+" "+key)
			held := !limited
			visitScopes(e, pods.FieldSelectors.Indexed, func(of Scope) { held = held || of == scope })
			if !held {
				t.Errorf("%q in namespace %q: the log of %+v does not have %s", c.fields, c.namespace, scope, text)
			}
		}
		if events := strings.Join(got, ", "); events != c.want {
			t.Errorf("%q in namespace %q: %s, want %s", c.fields, c.namespace, events, c.want)
		}
	}
}
