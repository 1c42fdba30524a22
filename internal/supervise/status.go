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

// Phase is the state of a component.
type Phase string

// The phases of a component.
const (
	Starting Phase = "Starting" // about to run
	Running  Phase = "Running"
	BackOff  Phase = "BackOff" // failed, and waiting for its next start
	Stopped  Phase = "Stopped" // stopped on request
)

// Status is the state of the components of a group, sorted by name. It can be
// encoded as JSON.
type Status struct {
	Components []Component `json:"components"`
}

// Component is the state of one component.
type Component struct {
	// Name is the component's, or COMPONENT/PART for a part of one.
	Name  string `json:"name"`
	Phase Phase  `json:"phase"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// NextStart is when the phase BackOff ends.
	NextStart time.Time `json:"nextStart,omitzero"`
	Restarts  int       `json:"restarts"`
	Panics    int       `json:"panics"`
	// LastError is the reason of the last failure, and Panicked whether it was
	// a panic.
	LastError     string    `json:"lastError,omitempty"`
	LastErrorTime time.Time `json:"lastErrorTime,omitzero"`
	Panicked      bool      `json:"panicked,omitempty"`
	// Conditions are the external problems of a running component.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is an external problem that keeps a running component from its
// work, such as a store that does not respond. The component keeps trying.
type Condition struct {
	Name    string    `json:"name"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Status returns the state of the components, and a channel that is closed at
// the next change.
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

// Report sets a condition of the component that ctx belongs to, or clears it if
// err is nil.
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
		m.conditions[condition] = Condition{Name: condition, Message: errorText(err), Since: since}
	})
}

// maxErrorText bounds the text of an error in a Status, in bytes.
const maxErrorText = 4 << 10

// errorText returns the text of an error, truncated to maxErrorText.
func errorText(err error) string {
	const more = "..."
	s := err.Error()
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText-len(more)], "") + more
	}
	return s
}

// RecordPanic logs and counts a panic that the component that ctx belongs to
// has recovered from, as one over a single key. It ignores errors that are not
// panics. A nil error costs nothing: informers pass one for each notification.
func RecordPanic(ctx context.Context, err error) {
	if err == nil {
		return
	}
	log := klog.FromContext(ctx)
	if s := scopeOf(ctx); s != nil && s.member != nil {
		s.member.recordPanic(log, err)
		return
	}
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		logFailure(log, err, "going on", "unknown")
	}
}

// failingDelay is the back-off from which FailingParts reports a part. The part
// has been started several times by then.
const failingDelay = lastDelay / 2

// FailingParts returns the parts of the component that ctx belongs to. The
// value of a part is its last error if it has failed repeatedly, or else nil.
func FailingParts(ctx context.Context) map[string]error {
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
		if c.Phase == BackOff && c.NextStart.Sub(c.Since) >= failingDelay {
			parts[part] = errors.New(c.LastError)
		}
	}
	return parts
}
