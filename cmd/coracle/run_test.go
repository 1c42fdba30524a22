package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// settled keeps the settings of a cluster called name in a new data directory.
func settled(t *testing.T, name string) (dataDir string) {
	t.Helper()
	s := host.Settings{Options: cluster.Options{Name: name, DataDir: t.TempDir(), BindAddress: "0.0.0.0"}}
	s.Complete(0, "n", "/bundle", "/root/.kube/config")
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	return s.Options.DataDir
}

// A control plane that is started again does not replace the cluster that has
// served with an empty one.
func TestNoControlPlaneStartsEmpty(t *testing.T) {
	registry := host.NewRegistry(t.TempDir())
	o := cluster.Options{Name: "a", DataDir: settled(t, "a")}
	lost := func(first bool) bool {
		err := checkData(registry, o, first)
		if err != nil && !strings.Contains(err.Error(), "where etcd/member is missing") {
			t.Error(err)
		}
		return err != nil
	}
	if lost(true) {
		t.Error("a new cluster is refused")
	}
	if !lost(false) {
		t.Error("one that was ready starts empty")
	}
	if err := registry.Put(host.Record{Occupied: host.Occupied{Name: o.Name, DataDir: o.DataDir}, Settled: true, Served: true}); err != nil {
		t.Fatal(err)
	}
	if !lost(true) {
		t.Error("one whose record says that it has served starts empty")
	}
	if err := os.MkdirAll(filepath.Join(o.DataDir, "etcd", "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if lost(true) || lost(false) {
		t.Error("one with its data is refused")
	}
}
