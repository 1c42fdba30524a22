package client

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestHandler(t *testing.T) {
	var got []string
	note := func(what string) func(*v1.Pod) { return func(p *v1.Pod) { got = append(got, what+" "+p.Name) } }
	h := Handler(note("add"), func(old, p *v1.Pod) { got = append(got, "update "+old.Name+" "+p.Name) }, note("remove"))
	pod := func(name string) *v1.Pod {
		p := &v1.Pod{}
		p.Name = name
		return p
	}
	h.OnAdd(pod("a"), false)
	h.OnUpdate(pod("a"), pod("b"))
	h.OnDelete(pod("b"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "c", Obj: pod("c")})
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "d"}) // its state was never known
	if want := []string{"add a", "update a b", "remove b", "remove c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReplaced(t *testing.T) {
	pod := func(uid types.UID) *v1.Pod {
		p := &v1.Pod{}
		p.UID = uid
		return p
	}
	for _, c := range []struct {
		old, obj any
		want     bool
	}{{pod("1"), pod("1"), false}, {pod("1"), pod("2"), true}, {"1", "2", false}, {pod("1"), "2", false}} {
		if got := Replaced(c.old, c.obj); got != c.want {
			t.Errorf("from %v to %v: %v", c.old, c.obj, got)
		}
	}
}
