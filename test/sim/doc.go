// Package sim has the simulation: tests that run the controllers, the scheduler
// and simulated nodes on an API server in memory, in virtual time, with faults
// that a seed chooses.
//
//	users ─────────────────────────────────► API server ── every change ──► rules
//	controller manager ──┐                     ▲   ▲
//	scheduler ───────────┴── faults ───────────┘   └── kubelets of simulated nodes
//
// Faults are errors and conflicts of requests, watches that end, are late or
// repeat events, components that crash at a write, nodes that fall silent, and,
// with a flag, clocks that differ.
// The rules hold at every change. When the faults stop, everything converges,
// and nobody writes any more.
//
// The seed determines what users do and what each request meets. The order in
// which goroutines run is the Go scheduler's.
package sim
