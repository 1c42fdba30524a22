package garbagecollector

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name          string
		finalizers    []string
		standings     []standing
		hasDependents bool
		want          string
	}{
		{"a solid owner", nil, []standing{solid}, false, ""},
		{"the only owner is gone", nil, []standing{absent}, false, "Background"},
		{"one of two is gone", nil, []standing{solid, absent}, false, "keep o0"},
		{"one of two waits", nil, []standing{waiting, solid}, true, "keep o1"},
		{"the owner waits", nil, []standing{waiting}, false, "Background"},
		{"the owner waits, with dependents", nil, []standing{waiting}, true, "Foreground"},
		{"wants to orphan", []string{metav1.FinalizerOrphanDependents}, []standing{absent}, true, "Orphan"},
		{"wants foreground", []string{metav1.FinalizerDeleteDependents}, []standing{absent}, false, "Foreground"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var owners []string
			for i := range c.standings {
				owners = append(owners, fmt.Sprint("o", i))
			}
			s := decide(owned("x", c.finalizers, owners...), c.standings, c.hasDependents)
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
		{"an owner is of no interest", put(owned("owner", nil)), ""},
		{"a dependent is judged", put(owned("a", nil, "owner!")), "judge a"},
		{"a second one", put(owned("b", nil, "owner")), "judge b"},
		{"nothing new", put(owned("a", nil, "owner!")), ""},
		{"the owner is deleted in the foreground", put(deleting), "foreground owner"},
		{"a dependent is gone", remove("a"), "foreground owner"},
		{"another loses its reference", put(owned("b", nil)), "foreground owner"},
		{"and gets one again", put(owned("b", nil, "owner")), "judge b"},
		{"the owner is gone", remove("owner"), "judge b"},
		{"the last is gone", remove("b"), ""},
	} {
		if step.got != step.want {
			t.Errorf("%s: %q, want %q", step.what, step.got, step.want)
		}
	}
	known := func(name string) bool { return g.isGone(object{podResource, "", name, types.UID(name)}) }
	if !known("owner") || known("c") || len(g.owners)+len(g.dependents)+len(g.going) != 0 {
		t.Errorf("left over: %+v", g)
	}
}

// A resource may be watched in another version, or not at all for a while:
// its objects are not gone then, and what they own stays.
func TestForgottenIsNotGone(t *testing.T) {
	g := newGraph()
	put := func(version string, m *metav1.PartialObjectMetadata) object {
		o := object{podResource.GroupResource().WithVersion(version), "", m.Name, m.UID}
		g.put(o, m)
		return o
	}
	now := metav1.Now()
	going := owned("root", []string{metav1.FinalizerDeleteDependents})
	going.DeletionTimestamp = &now
	put("v1", going)
	old := put("v1", owned("mid", nil, "root!"))
	leaf := put("v1beta1", owned("leaf", nil, "mid"))

	put("v2", going)
	fresh := put("v2", owned("mid", nil, "root!"))
	if got := show(g.forget(podResource)); got != "foreground root" {
		t.Errorf("to do after the watch of a version ended: %q", got)
	}
	if g.isGone(old) || g.isGone(fresh) {
		t.Error("an object whose version is not watched any longer counts as gone")
	}
	if got := g.dependentsOf("root"); len(got) != 1 || got[0].object != fresh || !g.isGoing("root") {
		t.Errorf("what is known in the new version was forgotten: %v", got)
	}
	if got := show(g.remove(fresh)); got != "foreground root, judge leaf" || !g.isGone(old) {
		t.Errorf("to do after the object went: %q", got)
	}
	other := leaf
	other.uid = "mid"
	if g.isGone(other) {
		t.Error("an object that has the UID of one that is gone, but another name, counts as gone")
	}
}

func show(tasks []task) string {
	var words []string
	for _, t := range tasks {
		words = append(words, []string{"judge", "foreground", "orphan"}[t.do]+" "+t.object.name)
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
