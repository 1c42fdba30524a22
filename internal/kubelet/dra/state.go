package dra

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/coracle-io/coracle/internal/kubelet/dra/checkpoint"
)

// key is the name of a ResourceClaim.
type key struct{ namespace, name string }

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// claim is a ResourceClaim that pods of the node use. Its fields, and what they
// contain, are not changed once it is part of the state.
type claim struct {
	checkpoint.Claim
	// ready has the drivers that have prepared the claim since this kubelet
	// started. What an earlier one had prepared may be gone since the machine
	// was started again.
	ready sets.Set[string]
}

func (c *claim) key() key { return key{c.Namespace, c.ClaimName} }

func (c *claim) uses(pod types.UID) bool { return c.PodUIDs.Has(string(pod)) }

// clone returns a copy that can be changed before it becomes part of the state.
func (c *claim) clone() *claim {
	out := *c
	out.PodUIDs, out.DriverState, out.ready = c.PodUIDs.Clone(), maps.Clone(c.DriverState), c.ready.Clone()
	return &out
}

// drivers returns the names of the claim's drivers, sorted.
func (c *claim) drivers() []string { return slices.Sorted(maps.Keys(c.DriverState)) }

// prepared reports whether all drivers have prepared the claim, for this kubelet
// or an earlier one.
func (c *claim) prepared() bool {
	for _, d := range c.DriverState {
		if d.Devices == nil {
			return false
		}
	}
	return true
}

// state has the claims that pods of the node use. What it has is on the disk.
type state struct {
	write func(claims []checkpoint.Claim) error

	writing sync.Mutex // serializes change and unready

	mu     sync.Mutex // guards claims
	claims map[key]*claim
}

// restore replaces the claims by the claims of a checkpoint.
func (s *state) restore(claims []checkpoint.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = make(map[key]*claim, len(claims))
	for _, c := range claims {
		if c.PodUIDs == nil {
			c.PodUIDs = sets.Set[string]{}
		}
		restored := &claim{Claim: c, ready: sets.Set[string]{}}
		s.claims[restored.key()] = restored
	}
}

// get returns a claim, nil if no pod uses it.
func (s *state) get(k key) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[k]
}

// all returns the claims, sorted.
func (s *state) all() []*claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.claims), func(a, b *claim) int { return compareKeys(a.key(), b.key()) })
}

// pods returns the pods that use claims, sorted.
func (s *state) pods() []types.UID {
	pods := sets.Set[types.UID]{}
	for _, c := range s.all() {
		for uid := range c.PodUIDs {
			pods.Insert(types.UID(uid))
		}
	}
	return sets.List(pods)
}

// of returns the claims that a pod uses, sorted.
func (s *state) of(pod types.UID) []key {
	var out []key
	for _, c := range s.all() {
		if c.uses(pod) {
			out = append(out, c.key())
		}
	}
	return out
}

// change replaces claims and removes those that are nil. Nothing changes if the
// checkpoint cannot be written.
func (s *state) change(changed map[key]*claim) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	next := maps.Clone(s.claims)
	s.mu.Unlock()
	if next == nil {
		next = make(map[key]*claim, len(changed))
	}
	for k, c := range changed {
		if c == nil {
			delete(next, k)
		} else {
			next[k] = c
		}
	}
	claims := make([]checkpoint.Claim, 0, len(next))
	for _, k := range slices.SortedFunc(maps.Keys(next), compareKeys) {
		claims = append(claims, next[k].Claim)
	}
	if err := s.write(claims); err != nil {
		return err
	}
	s.mu.Lock()
	s.claims = next
	s.mu.Unlock()
	return nil
}

// unready records that drivers may have undone claims from now on, which another
// pod must have prepared again. What is on the disk is the same.
func (s *state) unready(claims map[string][]*claim) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.claims)
	for driver, undone := range claims {
		for _, c := range undone {
			changed := next[c.key()].clone()
			changed.ready.Delete(driver)
			next[c.key()] = changed
		}
	}
	s.claims = next
}

// locks holds the claims that a goroutine works on, so that the pods that share
// a claim do so one after the other.
type locks struct {
	mu   sync.Mutex // guards held
	held map[key]chan struct{}
}

// lock waits until no other goroutine works on any of the claims, which are
// sorted.
func (l *locks) lock(ctx context.Context, claims []key) (unlock func(), err error) {
	var mine []key
	unlock = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, k := range mine {
			close(l.held[k])
			delete(l.held, k)
		}
	}
	for _, k := range claims {
		for {
			l.mu.Lock()
			busy := l.held[k]
			if busy == nil {
				if l.held == nil {
					l.held = make(map[key]chan struct{})
				}
				l.held[k] = make(chan struct{})
				mine = append(mine, k)
			}
			l.mu.Unlock()
			if busy == nil {
				break
			}
			select {
			case <-busy:
			case <-ctx.Done():
				unlock()
				return nil, ctx.Err()
			}
		}
	}
	return unlock, nil
}
