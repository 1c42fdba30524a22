package framework

// CycleState holds what plugins keep between the extension points of one
// attempt to schedule one pod. The scheduling cycle owns it first, then the
// binding cycle.
type CycleState struct {
	slots []any // by StateKey
}

// NewCycleState returns a state with room for the keys made with h.
func NewCycleState(h *Handle) *CycleState { return &CycleState{slots: make([]any, h.keys)} }

// StateKey is one plugin's place in the CycleStates of its profile.
type StateKey[T any] struct{ slot int }

// NewStateKey returns a key for values of type T. A plugin makes its keys in
// its constructor.
func NewStateKey[T any](h *Handle) StateKey[T] {
	h.keys++
	return StateKey[T]{h.keys - 1}
}

// Get returns the value; ok is false if nothing was put there in this cycle.
func (k StateKey[T]) Get(s *CycleState) (value T, ok bool) {
	value, ok = s.slots[k.slot].(T)
	return value, ok
}

// Put stores the value.
func (k StateKey[T]) Put(s *CycleState, value T) { s.slots[k.slot] = value }
