package persistent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMapsAreMaps makes random changes in a Map and in an ordinary map. Each version stays
// as it was, and Diff finds what differs between any two.
func TestMapsAreMaps(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for _, keys := range []int{3, 30, 3000} {
		versions, want := []Map[int, int]{{}}, []map[int]int{{}}
		for range 60 {
			m, of := versions[len(versions)-1], maps.Clone(want[len(want)-1])
			for range 1 + random.IntN(keys) {
				key := random.IntN(keys)
				if random.IntN(3) == 0 {
					m = m.Without(key)
					delete(of, key)
				} else {
					m = m.With(key, key%7+random.IntN(2))
					of[key] = m.Get(key)
				}
			}
			versions, want = append(versions, m), append(want, of)
		}
		for i, m := range versions {
			if got := maps.Collect(m.All()); !maps.Equal(got, want[i]) || m.Len() != len(want[i]) {
				t.Fatalf("version %d of %d keys has %d entries (Len %d), want %d: %v, want %v", i, keys, len(got), m.Len(), len(want[i]), got, want[i])
			}
			if !sameShape(m.root, Of(want[i]).root) {
				t.Errorf("version %d of %d keys has another shape than a new map", i, keys)
			}
			j := random.IntN(len(versions))
			if got, expect := differences(m, versions[j]), expected(want[i], want[j]); !slices.Equal(got, expect) {
				t.Errorf("versions %d and %d of %d keys differ by %v, want %v", i, j, keys, got, expect)
			}
		}
	}
}

func differences(a, b Map[int, int]) (list []int) {
	Diff(a, b, func(key int) { list = append(list, key) })
	slices.Sort(list)
	return list
}

func expected(a, b map[int]int) (list []int) {
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			list = append(list, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

// sameShape reports whether two nodes have as many entries in each place.
func sameShape(a, b *node[int, int]) bool {
	if a.count() != b.count() || a == nil {
		return a.count() == b.count()
	}
	if a.children == nil || b.children == nil {
		return a.children == b.children && len(a.entries) == len(b.entries)
	}
	for i := range fanout {
		if !sameShape(a.children[i], b.children[i]) {
			return false
		}
	}
	return true
}

// TestEqualHashes checks that keys with the same hash are told apart.
func TestEqualHashes(t *testing.T) {
	var n *node[int, int]
	const many = 3 * mostOfLeaf
	for key := range many {
		n = n.with(entry[int, int]{7, key, key}, 0)
	}
	for key := range many {
		if value, found := n.find(entry[int, int]{hash: 7, key: key}, 0); !found || value != key {
			t.Errorf("the key %d has %d, %v", key, value, found)
		}
	}
	for key := range many {
		n = n.without(entry[int, int]{hash: 7, key: key}, 0)
		if n.count() != many-1-key {
			t.Fatalf("%d entries after the removal of %d", n.count(), key)
		}
	}
}

// TestNothingChanges checks that a change to what is there makes no new version.
func TestNothingChanges(t *testing.T) {
	m := Of(map[string]int{"a": 1, "b": 2})
	if m.With("a", 1) != m || m.Without("c") != m || m.With("a", 2) == m {
		t.Error("only a change of an entry is one of the version")
	}
	var empty Map[string, int]
	if m.Without("a").Without("b") != empty || empty.Len() != 0 || empty.Get("a") != 0 || empty.Has("a") || !m.Has("a") || empty.Without("a") != empty {
		t.Error("a map without entries is not the empty one")
	}
	seen := 0
	for range m.All() {
		if seen++; seen == 1 {
			break
		}
	}
	if seen != 1 {
		t.Errorf("an iteration that ends has seen %d entries", seen)
	}
}

// TestCostOfAChange checks that a change, and the search for it, visit as few entries in a
// large map as in a small one, and allocate about as often.
func TestCostOfAChange(t *testing.T) {
	cost := func(entries int) float64 {
		visited := 0
		m := numbers(entries).Counted(&visited)
		changes := 0
		allocations := testing.AllocsPerRun(100, func() {
			changes++
			next := m.With(changes%entries, -changes)
			Diff(m, next, func(int) {})
			m = next
		})
		if most := changes * 2 * mostOfLeaf; visited > most {
			t.Errorf("%d changes among %d entries visit %d, want at most %d", changes, entries, visited, most)
		}
		return allocations
	}
	small, large := cost(100), cost(100_000)
	if large > small+2*deepest {
		t.Errorf("a change allocates %v times among 100 entries and %v times among 100,000", small, large)
	}
}

func numbers(n int) Map[int, int] {
	m := map[int]int{}
	for i := range n {
		m[i] = i
	}
	return Of(m)
}

// BenchmarkChange measures a change and the search for it.
func BenchmarkChange(b *testing.B) {
	for _, entries := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			m := numbers(entries)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next := m.With(i%entries, -i-1)
				Diff(m, next, func(int) {})
				m = next
			}
		})
	}
}
