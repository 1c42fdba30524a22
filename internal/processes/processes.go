// Package processes supervises the processes of a cluster: one for the control
// plane and one for each node. If one of them ends, for example by kill -9 or
// lack of memory, the others keep working.
//
//	coracle up ──► coracle supervise ──┬─► coracle run control-plane
//	                 │       ▲         └─► coracle run node ──► containerd ──► containers
//	                 │       └── messages of each: stages, readiness, components, why it failed
//	                 └─► RUN/processes.json, for coracle status
//
// SetNodes adds and removes nodes while the others run.
//
// A process that ends is restarted: at once, then with back-off. If the
// supervisor itself is killed, the kernel kills its processes with it, and the
// next `up` starts all processes. Containers and containerd keep running in
// each case.
//
// The supervisor is a loop in one goroutine, in a process of its own. It starts
// before the rest of the program is initialized (package early), and must
// import only small packages of the standard library.
package processes

import (
	"encoding/json"
	"time"
)

// Names of the processes. Further nodes are called node-2, node-3 and so on
// (NodeProcess).
const (
	ControlPlane = "control-plane"
	Node         = "node"
)

// Supervisor is the name of the supervisor in the log.
const Supervisor = "supervisor"

// Command is the hidden subcommand that runs the supervisor.
const Command = "supervise"

// Message is a message of a process to the supervisor: a line with a JSON
// document.
type Message struct {
	// Stage describes a stage of the start that is done.
	Stage string `json:"stage,omitempty"`
	// Serves says that clients can use the cluster from now on, so that it may
	// have objects of theirs.
	Serves bool `json:"serves,omitempty"`
	// Ready says that the process does all of its work.
	Ready bool `json:"ready,omitempty"`
	// Failed is why the process cannot continue. The process ends next.
	Failed string `json:"failed,omitempty"`
	// Final reports that restarting the process cannot help.
	Final bool `json:"final,omitempty"`
	// MemoryLimit is the memory limit of the process, in bytes.
	MemoryLimit int64 `json:"memoryLimit,omitempty"`
	// Components is the state of the process's components.
	Components json.RawMessage `json:"components,omitempty"`
}

// Status is the state of a cluster's processes. The supervisor writes it to the
// run directory, and Read reads it.
type Status struct {
	// PID and Start identify the supervisor. Start is in clock ticks since
	// boot.
	PID       int       `json:"pid"`
	Start     uint64    `json:"start"`
	Since     time.Time `json:"since"`
	Ready     bool      `json:"ready"`
	Processes []Process `json:"processes"`
	// ChangesNodes says that SetNodes changes which nodes it runs.
	ChangesNodes bool `json:"changesNodes,omitempty"`
}

// Process is the state of a process.
type Process struct {
	Name  string    `json:"name"`
	PID   int       `json:"pid,omitempty"` // 0 if it is not running
	Start uint64    `json:"start,omitempty"`
	Since time.Time `json:"since,omitzero"` // when it was last started
	Ready bool      `json:"ready"`
	// Restarts is how often it was restarted.
	Restarts  int       `json:"restarts"`
	LastEnd   time.Time `json:"lastEnd,omitzero"`
	LastCause string    `json:"lastCause,omitempty"`
	// MemoryLimit is how much memory it may use, in bytes, as it has reported; 0
	// before that, and if there is no limit.
	MemoryLimit int64 `json:"memoryLimit,omitempty"`
	// NextStart is when a process that is not running is restarted.
	NextStart time.Time `json:"nextStart,omitzero"`
	// Components is the state of its components, as last reported.
	Components json.RawMessage `json:"components,omitempty"`
}
