package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/coracle-io/coracle/internal/host"
)

// mustFind is registry.Find for commands that need a cluster: a missing one is an error
// with an exit code of its own.
func mustFind(registry host.Registry, name string) (host.Record, error) {
	rec, err := registry.Find(name)
	if errors.Is(err, host.ErrNoCluster) {
		return rec, noClusterError(registry, name)
	}
	return rec, err
}

// noClusterError is the error of commands that need a cluster.
func noClusterError(registry host.Registry, name string) error {
	err := fmt.Errorf("no cluster %s is on this machine: start one with coracle up --name=%s", name, name)
	if known, _ := registry.Names(); len(known) > 0 { // otherwise the error is enough
		err = fmt.Errorf("%w, or name one of %s", err, strings.Join(known, ", "))
	}
	if _, statErr := os.Stat(host.RootOfRoot); statErr == nil && os.Geteuid() != 0 {
		err = fmt.Errorf("%w; sudo coracle list shows the clusters of root", err)
	}
	return codedError{err, exitNoCluster}
}

// stoppedError is the error of commands that need a running cluster.
func stoppedError(name string) error {
	return codedError{fmt.Errorf("cluster %s is stopped: start it with coracle start %s", name, name), exitStopped}
}

// warn writes what does not keep a command from going on.
func warn(err error) { fmt.Fprintln(os.Stderr, "coracle: warning:", err) }
