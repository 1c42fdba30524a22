package garbagecollector

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var podResource = v1.SchemeGroupVersion.WithResource("pods")

func owned(name string, finalizers []string, owners ...string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: finalizers}}
	for _, o := range owners {
		o, blocks := strings.CutSuffix(o, "!")
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: o, UID: types.UID(o), BlockOwnerDeletion: &blocks})
	}
	return m
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name          string
		finalizers    []string
		owners        []ownerState
		hasDependents bool
		want          string
	}{
		{"a solid owner", nil, []ownerState{solid}, false, ""},
		{"the only owner is absent", nil, []ownerState{dangling}, false, "Background"},
		{"one of two is absent", nil, []ownerState{solid, dangling}, false, "keep o0"},
		{"one of two waits for dependents", nil, []ownerState{waitingForDependents, solid}, true, "keep o1"},
		{"the owner waits for dependents", nil, []ownerState{waitingForDependents}, false, "Background"},
		{"the owner waits, and the object has dependents", nil, []ownerState{waitingForDependents}, true, "Foreground"},
		{"finalizer orphan", []string{metav1.FinalizerOrphanDependents}, []ownerState{dangling}, true, "Orphan"},
		{"finalizer foregroundDeletion", []string{metav1.FinalizerDeleteDependents}, []ownerState{dangling}, false, "Foreground"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var owners []string
			for i := range c.owners {
				owners = append(owners, fmt.Sprint("o", i))
			}
			s := plan(owned("x", c.finalizers, owners...), c.owners, c.hasDependents)
			got := string(s.delete)
			for _, ref := range s.keep {
				got += "keep " + ref.Name
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestGraph(t *testing.T) {
	g := newGraph()
	put := func(m *metav1.PartialObjectMetadata) string {
		return show(g.put(object{podResource, "", m.Name, m.UID}, m))
	}
	remove := func(name string) string { return show(g.remove(object{podResource, "", name, types.UID(name)})) }
	now := metav1.Now()
	deleting := owned("owner", []string{metav1.FinalizerDeleteDependents})
	deleting.DeletionTimestamp = &now

	for _, step := range []struct{ what, got, want string }{
		{"an object without owners", put(owned("owner", nil)), ""},
		{"a dependent", put(owned("a", nil, "owner!")), "attempt a"},
		{"a second dependent", put(owned("b", nil, "owner")), "attempt b"},
		{"no change", put(owned("a", nil, "owner!")), ""},
		{"the owner is deleted in the foreground", put(deleting), "dependents of owner"},
		{"a dependent is deleted", remove("a"), "dependents of owner"},
		{"another loses its reference", put(owned("b", nil)), "dependents of owner"},
		{"the reference is added again", put(owned("b", nil, "owner")), "attempt b"},
		{"the owner is deleted", remove("owner"), "attempt b"},
		{"the last dependent is deleted", remove("b"), ""},
	} {
		if step.got != step.want {
			t.Errorf("%s: %q, want %q", step.what, step.got, step.want)
		}
	}
	absent := func(name string) bool { return g.isAbsent(object{podResource, "", name, types.UID(name)}) }
	if !absent("owner") || absent("c") || len(g.owners)+len(g.dependents)+len(g.deletingDependents) != 0 {
		t.Errorf("left over: %+v", g)
	}
}

// When the watch of a resource ends, its objects do not count as absent: it may be
// watched in another version, or not be served for a while.
func TestForgottenIsNotAbsent(t *testing.T) {
	g := newGraph()
	put := func(version string, m *metav1.PartialObjectMetadata) object {
		o := object{podResource.GroupResource().WithVersion(version), "", m.Name, m.UID}
		g.put(o, m)
		return o
	}
	now := metav1.Now()
	root := owned("root", []string{metav1.FinalizerDeleteDependents})
	root.DeletionTimestamp = &now
	put("v1", root)
	old := put("v1", owned("mid", nil, "root!"))
	leaf := put("v1beta1", owned("leaf", nil, "mid"))

	put("v2", root)
	fresh := put("v2", owned("mid", nil, "root!"))
	if got := show(g.forget(podResource)); got != "dependents of root" {
		t.Errorf("tasks after the watch of a version ended: %q", got)
	}
	if g.isAbsent(old) || g.isAbsent(fresh) {
		t.Error("an object whose version is no longer watched counts as absent")
	}
	if got := g.dependentsOf("root"); len(got) != 1 || got[0].object != fresh || !g.isDeletingDependents("root") {
		t.Errorf("the object in the new version was forgotten: %v", got)
	}
	if got := show(g.remove(fresh)); got != "attempt leaf, dependents of root" || !g.isAbsent(old) {
		t.Errorf("tasks after the object was deleted: %q", got)
	}
	other := leaf
	other.uid = "mid"
	if g.isAbsent(other) {
		t.Error("an object with the UID of an absent one, but another name, counts as absent")
	}
}

func show(tasks []task) string {
	var words []string
	for _, t := range tasks {
		words = append(words, []string{"attempt", "dependents of", "orphan"}[t.action]+" "+t.object.name)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func TestRecentForgetsTheOldest(t *testing.T) {
	r := newRecent[types.UID](2)
	for _, uid := range []types.UID{"a", "b", "b", "c"} {
		r.add(uid)
	}
	if r.has("a") || !r.has("b") || !r.has("c") {
		t.Errorf("has %v", r.set)
	}
}

// An owner that was replaced by another object of the same name is gone, also if its deletion
// was missed.
func TestReplacedOwner(t *testing.T) {
	var got []string
	m := &monitors{changed: func(_ schema.GroupVersionResource, o metav1.Object, deleted bool) {
		got = append(got, fmt.Sprint(o.GetUID(), " ", deleted))
	}}
	before, after := owned("owner", nil), owned("owner", nil)
	after.UID = "another"
	h := m.handler(podResource)
	h.OnUpdate(before, before)
	h.OnUpdate(before, after)
	if want := []string{"owner false", "owner true", "another false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
