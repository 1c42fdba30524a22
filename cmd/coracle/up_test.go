package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/host"
)

// If two commands start a cluster at once, the second waits for the first, and
// starts the cluster if the first gives up.
func TestUpWaitsForAnotherOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	f := &upFlags{timeout: 2 * claimRetry, settings: host.Settings{
		Kubeconfig: filepath.Join(t.TempDir(), "config"),
		Options: cluster.Options{
			Name: "test-" + strings.ToLower(t.Name())[:20], DataDir: t.TempDir(), BindAddress: "127.0.0.1", Ports: cluster.Ports{Secure: freeport.For(t)}, LogLevels: "1",
			Etcd: &cluster.EtcdOptions{}, Node: &cluster.NodeOptions{},
		},
	}}
	registry := host.NewRegistry(t.TempDir())
	lock, err := host.LockData(t.Context(), f.settings.Options.DataDir, f.settings.Options.Name, 0)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var busy *host.BusyError
	if _, _, err := f.claim(t.Context(), registry); !errors.As(err, &busy) || busy.PID != os.Getpid() || time.Since(began) < f.timeout {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	f.timeout = time.Minute
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	p, _, err := f.claim(t.Context(), registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.claim.Abandon(), p.claim.Vacate(), p.claim.Lock.Release()); err != nil {
		t.Error(err)
	}
}

// Up starts a cluster that has ended since it was found running.
func TestUpWaitsForNoClusterThatHasEnded(t *testing.T) {
	f := &upFlags{timeout: time.Minute}
	if err := f.awaitWorking(t.Context(), host.Record{Occupied: host.Occupied{Name: "ended", DataDir: t.TempDir()}}); !errors.Is(err, errEnded) {
		t.Error(err)
	}
}

// When all slots have clusters, a new one gets the slot of one whose data and
// processes are gone, with its address ranges, also when it starts again. That
// one's record stays.
func TestUpWhenAllSlotsHaveClusters(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("nodes need root")
	}
	const name = "test-all-slots"
	data, registry := t.TempDir(), host.NewRegistry(t.TempDir())
	bundle := filepath.Join(data, "bundle")
	if err := errors.Join(os.MkdirAll(filepath.Join(bundle, "bin"), 0o700), os.WriteFile(filepath.Join(bundle, "bin", "containerd"), nil, 0o700)); err != nil {
		t.Fatal(err)
	}
	records := map[string]host.Record{}
	for slot := range host.MaxSlots {
		s := host.Settings{Nodes: 1, Options: cluster.Options{Name: fmt.Sprintf("test-slot-%d", slot), DataDir: filepath.Join(data, fmt.Sprint(slot))}}
		s.Complete(slot, "n", "/bundle", "/config")
		rec := host.Record{Slot: s.Slot, Kubeconfig: s.Kubeconfig, Nodes: s.Nodes, Settled: true, Occupied: s.Occupied()}
		if err := errors.Join(os.Mkdir(rec.DataDir, 0o700), registry.Put(rec)); err != nil {
			t.Fatal(err)
		}
		records[rec.Name] = rec
	}
	secure := freeport.For(t) // a cluster that starts meanwhile may take that of a slot
	claim := func() (host.Record, error) {
		f := newUpFlags()
		f.set, f.settings.Options.Ports.Secure = []string{"bundle", "secure-port"}, secure
		f.settings.Kubeconfig, f.settings.Options.Node.BundleDir = filepath.Join(data, "kubeconfig"), bundle
		f.settings.Options.Name, f.settings.Options.DataDir, f.settings.Options.BindAddress = name, filepath.Join(data, "new"), "127.0.0.1"
		p, _, err := f.claim(t.Context(), registry)
		if err != nil {
			return host.Record{}, err
		}
		return p.record, p.claim.Lock.Release()
	}
	if _, err := claim(); err == nil || !strings.Contains(err.Error(), "take one down first") {
		t.Errorf("all slots are taken: %v", err)
	}
	for _, rec := range records {
		if err := os.Remove(rec.DataDir); err != nil {
			t.Fatal(err)
		}
	}
	for _, start := range []string{"first", "second"} {
		now, err := claim()
		if err != nil {
			t.Fatalf("%s start: %v", start, err)
		}
		former := records[fmt.Sprintf("test-slot-%d", now.Slot)]
		if now.ServiceCIDR != former.ServiceCIDR || now.ClusterCIDR != former.ClusterCIDR || now.NodePorts != former.NodePorts {
			t.Errorf("%s start: slot %d has the ranges %+v, want those of %+v", start, now.Slot, now.Occupied, former.Occupied)
		}
	}
	for name, rec := range records {
		if kept, err := registry.Get(name); err != nil || !kept.Same(rec) || kept.Slot != rec.Slot {
			t.Errorf("the record of %s is %+v, %v", name, kept, err)
		}
	}
}
