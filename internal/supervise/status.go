package supervise

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// Phase is what a component is doing.
type Phase string

// The phases of a component.
const (
	Starting Phase = "Starting" // it is about to run
	Running  Phase = "Running"
	BackOff  Phase = "BackOff" // it failed and waits for its next start
	Stopped  Phase = "Stopped" // it was asked to end
)

// Status is how the components of a group are, ordered by name. It can be
// written as JSON.
type Status struct {
	Components []Component `json:"components"`
}

// Component is how one component is.
type Component struct {
	// Name is the component's, or COMPONENT/PART for a part of one.
	Name  string `json:"name"`
	Phase Phase  `json:"phase"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// NextStart ends the phase BackOff.
	NextStart time.Time `json:"nextStart,omitzero"`
	Restarts  int       `json:"restarts"`
	Panics    int       `json:"panics"`
	// LastError is why it failed last, and Panicked whether by a panic.
	LastError     string    `json:"lastError,omitempty"`
	LastErrorTime time.Time `json:"lastErrorTime,omitzero"`
	Panicked      bool      `json:"panicked,omitempty"`
	// Conditions are what keeps it from its work although it runs.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is something outside that keeps a component from its work, such
// as a store that does not answer. The component goes on trying.
type Condition struct {
	Name    string    `json:"name"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Status returns how the components are now, and a channel that is closed
// when that has changed.
func (g *Group) Status() (Status, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var s Status
	for _, m := range g.members {
		s.Components = append(s.Components, m.snapshot())
	}
	slices.SortFunc(s.Components, func(a, b Component) int { return cmp.Compare(a.Name, b.Name) })
	return s, g.changed
}

// Report says that a condition keeps the component that ctx belongs to from
// its work; nil says that it does so no longer.
func Report(ctx context.Context, condition string, err error) {
	s := scopeOf(ctx)
	if s == nil || s.member == nil {
		return
	}
	m := s.member
	m.update(func() {
		if err == nil {
			delete(m.conditions, condition)
			return
		}
		since := time.Now()
		if before, ok := m.conditions[condition]; ok {
			since = before.Since
		}
		m.conditions[condition] = Condition{Name: condition, Message: text(err), Since: since}
	})
}

// maxText bounds a text of a Status, in bytes.
const maxText = 4 << 10

// text is an error in words, cut where it is longer than anybody reads.
func text(err error) string {
	const more = "..."
	s := err.Error()
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText-len(more)], "") + more
	}
	return s
}

// Note records a panic that the component that ctx belongs to has survived,
// as one over a single key: it is logged with its stack and counted. Errors
// that are no panics are ignored; none costs nothing, for it follows each
// notification of each listener.
func Note(ctx context.Context, err error) {
	if err == nil {
		return
	}
	log := klog.FromContext(ctx)
	if s := scopeOf(ctx); s != nil && s.member != nil {
		s.member.note(log, err)
		return
	}
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		logFailure(log, err, "going on", "unknown")
	}
}

// failing is the back-off from which on a part is said to fail: it has been
// started again several times by then.
const failing = lastDelay / 2

// Failing returns the parts of the component that ctx belongs to, and of each
// why it ended, if it has been failing for a while; else nil.
func Failing(ctx context.Context) map[string]error {
	s := scopeOf(ctx)
	if s == nil || s.member == nil {
		return nil
	}
	own := s.member.state.Name
	status, _ := s.member.group.Status()
	parts := map[string]error{}
	for _, c := range status.Components {
		part, ok := strings.CutPrefix(c.Name, own+"/")
		if !ok {
			continue
		}
		parts[part] = nil
		if c.Phase == BackOff && c.NextStart.Sub(c.Since) >= failing {
			parts[part] = errors.New(c.LastError)
		}
	}
	return parts
}
