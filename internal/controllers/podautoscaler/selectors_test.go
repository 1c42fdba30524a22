package podautoscaler

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The index finds what a look at every selector finds.
func TestSelectorIndex(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	texts := []string{
		"app=a", "app=b", "app=a,tier=web", "app in (a)", "app in (a,b)", "tier!=web", "!app", "tier", "app=a,tier notin (web)", "", "tier=web,app=b,zone=x",
	}
	x, dumb := newSelectorIndex(), map[string]labels.Selector{}
	for step := range 2000 {
		name := fmt.Sprint("hpa-", random.IntN(30))
		if random.IntN(4) == 0 {
			x.remove(name)
			delete(dumb, name)
		} else {
			selector, err := labels.Parse(texts[random.IntN(len(texts))])
			if err != nil {
				t.Fatal(err)
			}
			x.set(name, selector)
			dumb[name] = selector
		}
		of := labels.Set{}
		for _, choice := range [][]string{{"app", "a", "b", "c"}, {"tier", "web", "db"}, {"zone", "x", "y"}} {
			if n := random.IntN(len(choice)); n > 0 {
				of[choice[0]] = choice[n]
			}
		}
		want, got := sets.New[string](), sets.New[string]()
		for name, selector := range dumb {
			if selector.Matches(of) {
				want.Insert(name)
			}
		}
		if x.matching(of, got); !got.Equal(want) {
			t.Fatalf("seed %d, step %d: pods with %v have %v, want %v", seed, step, of, sets.List(got), sets.List(want))
		}
	}
	for name := range dumb {
		x.remove(name)
	}
	if len(x.selectors)+len(x.required)+len(x.byLabel) > 0 {
		t.Errorf("an empty index holds %+v", x)
	}
}

// The pods of one target lead to its autoscaler alone, also if all targets have a label in
// common.
func TestSelectorIndexIsSelective(t *testing.T) {
	x := newSelectorIndex()
	for i := range 1000 {
		selector, err := labels.Parse(fmt.Sprintf("app=a%d,managed-by=helm", i))
		if err != nil {
			t.Fatal(err)
		}
		x.set(fmt.Sprint("hpa-", i), selector)
	}
	for at, names := range x.byLabel {
		if names.Len() > 2 {
			t.Errorf("%d autoscalers are found by %v", names.Len(), at)
		}
	}
}
