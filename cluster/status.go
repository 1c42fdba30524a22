package cluster

import (
	"time"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Status is the state of a cluster's components, sorted by name. It can be
// encoded as JSON.
type Status struct {
	Components []Component `json:"components"` // sorted by name
}

// Phase is the state of a component.
type Phase string

// The phases of a component.
const (
	Starting Phase = "Starting" // about to run
	Running  Phase = "Running"
	BackOff  Phase = "BackOff" // failed, and waiting for NextStart
	Stopped  Phase = "Stopped" // its context has ended
)

// Component is the state of one component.
type Component struct {
	Name          string      `json:"name"`                   // such as "scheduler", or "apiserver/https" for a part of one
	Phase         Phase       `json:"phase"`                  // what it does now
	Since         time.Time   `json:"since"`                  // when the phase began
	NextStart     time.Time   `json:"nextStart,omitzero"`     // when the phase BackOff ends
	Restarts      int         `json:"restarts"`               // how often it was started again
	Panics        int         `json:"panics"`                 // how often it panicked
	LastError     string      `json:"lastError,omitempty"`    // why it failed last
	LastErrorTime time.Time   `json:"lastErrorTime,omitzero"` // when it failed last
	Panicked      bool        `json:"panicked,omitempty"`     // whether LastError was a panic
	Conditions    []Condition `json:"conditions,omitempty"`   // what keeps it from its work although it runs
}

// Condition is an external problem of a running component, such as a store that
// does not answer. The component keeps trying.
type Condition struct {
	Name    string    `json:"name"`    // such as "NoSpace"
	Message string    `json:"message"` // what is wrong
	Since   time.Time `json:"since"`   // when it was first seen
}

// status converts the status of a group to that of a cluster.
func status(g *supervise.Group) (Status, <-chan struct{}) {
	all, changed := g.Status()
	var s Status
	for _, c := range all.Components {
		component := Component{
			Name: c.Name, Phase: Phase(c.Phase), Since: c.Since, NextStart: c.NextStart, Restarts: c.Restarts, Panics: c.Panics,
			LastError: c.LastError, LastErrorTime: c.LastErrorTime, Panicked: c.Panicked,
		}
		for _, condition := range c.Conditions {
			component.Conditions = append(component.Conditions, Condition(condition))
		}
		s.Components = append(s.Components, component)
	}
	return s, changed
}
