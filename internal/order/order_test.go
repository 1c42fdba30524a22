package order

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFalseFirst(t *testing.T) {
	for _, c := range []struct {
		a, b bool
		want int
	}{{false, false, 0}, {false, true, -1}, {true, false, 1}, {true, true, 0}} {
		if got := FalseFirst(c.a, c.b); got != c.want {
			t.Errorf("FalseFirst(%v, %v) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestByAge(t *testing.T) {
	pod := func(namespace, name string, created int64) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0))}}
	}
	want := []*v1.Pod{pod("b", "b", 1), pod("a", "b", 2), pod("b", "a", 2), pod("b", "b", 2), pod("a", "a", 3)}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, ByAge)
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
