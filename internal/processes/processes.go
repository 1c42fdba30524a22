// Package processes keeps the processes of a cluster running: one for the
// control plane and one for the node, so that whatever ends one of them, a
// kill -9 or memory that ran out, leaves the other working.
//
//	coracle up ──► coracle supervise ──┬─► coracle run control-plane
//	                 │       ▲         └─► coracle run node ──► containerd ──► containers
//	                 │       └── messages of each: stages, readiness, components, why it failed
//	                 └─► RUN/processes.json, for coracle status
//
// A process that ends is started again: at once, then with back-off. When the
// supervisor itself is killed, the kernel ends its processes with it; the next
// `up` starts all anew. Containers and containerd go on in each case.
//
// The supervisor is a loop in one goroutine, in a process that holds nothing
// else: it begins before the rest of the program is initialized (package
// early), and must not import more than the standard library's small half.
package processes

import (
	"encoding/json"
	"time"
)

// Names of the processes.
const (
	ControlPlane = "control-plane"
	Node         = "node"
)

// Command is the hidden subcommand that is the supervisor.
const Command = "supervise"

// Message is what a process tells the supervisor: one JSON document a line.
type Message struct {
	// Stage is something that is up now, for whoever waits.
	Stage string `json:"stage,omitempty"`
	// Serves says that others can use the cluster from now on, so that what is
	// stored in it is theirs.
	Serves bool `json:"serves,omitempty"`
	// Ready says that the process does all of its work.
	Ready bool `json:"ready,omitempty"`
	// Failed is why the process cannot go on; it ends next.
	Failed string `json:"failed,omitempty"`
	// Final says that it fails each time that it is tried again.
	Final bool `json:"final,omitempty"`
	// MemoryLimit is what the process keeps its memory to, in bytes.
	MemoryLimit int64 `json:"memoryLimit,omitempty"`
	// Components is how the components of the process are.
	Components json.RawMessage `json:"components,omitempty"`
}

// Status is how the processes of a cluster are. The supervisor keeps it in
// its run directory; Read reads it.
type Status struct {
	// PID and Start are the supervisor's. Start is in clock ticks since boot.
	PID       int       `json:"pid"`
	Start     uint64    `json:"start"`
	Since     time.Time `json:"since"`
	Ready     bool      `json:"ready"`
	Processes []Process `json:"processes"`
}

// Process is how one process is.
type Process struct {
	Name  string    `json:"name"`
	PID   int       `json:"pid,omitempty"` // 0 when it is not running
	Start uint64    `json:"start,omitempty"`
	Since time.Time `json:"since,omitzero"` // when this one was started
	Ready bool      `json:"ready"`
	// Restarts counts how often it was started again.
	Restarts  int       `json:"restarts"`
	LastEnd   time.Time `json:"lastEnd,omitzero"`
	LastCause string    `json:"lastCause,omitempty"`
	// NextStart is when a process that is not running is started again.
	NextStart time.Time `json:"nextStart,omitzero"`
	// Components are those in the process, as it last told.
	Components json.RawMessage `json:"components,omitempty"`
}
