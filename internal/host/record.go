// Package host is what the command line knows about the machine it runs on:
// which clusters live here, what each of them occupies, whether the machine
// can carry one, and how to take one away without a trace.
package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Root is where clusters keep their data and records unless told otherwise.
const Root = "/var/lib/coracle"

// Record says where a cluster is and what it occupies on this machine. It is
// written before anything is started and removed last, so that whatever was
// left behind by a kill -9 can be found again.
type Record struct {
	Name          string    `json:"name"`
	Slot          int       `json:"slot"` // sets the default ports and address ranges
	DataDir       string    `json:"dataDir"`
	Made          []string  `json:"made,omitzero"`        // the data directory and those above, as far as they were missing
	Kubeconfig    string    `json:"kubeconfig"`           // the file the context was merged into
	Merged        Merged    `json:"merged"`               // what that changed
	Settled       bool      `json:"settled,omitzero"`     // the data directory has settings
	Served        bool      `json:"served,omitzero"`      // the API server has answered, so that there are objects
	PID           int       `json:"pid"`                  // of the process, 0 when none
	PIDStart      uint64    `json:"pidStart"`             // its start time in clock ticks since boot
	Unit          string    `json:"unit,omitzero"`        // of systemd, which runs it
	Server        string    `json:"server"`               // URL of the API server
	NFTable       string    `json:"nftTable"`             // nftables table of the proxy
	CgroupRoot    string    `json:"cgroupRoot"`           // below which the pods' cgroups are
	ExternalCRI   string    `json:"externalCRI,omitzero"` // endpoint of a runtime that is not ours
	CNIConfDir    string    `json:"cniConfDir,omitzero"`  // of that runtime, where this cluster's network is written
	ServiceCIDR   string    `json:"serviceCIDR"`
	ClusterCIDR   string    `json:"clusterCIDR"`
	NodePorts     string    `json:"nodePorts"`
	BundleDir     string    `json:"bundleDir"` // of the container runtime
	Started       time.Time `json:"started"`
	BinaryVersion string    `json:"binaryVersion"`
	EtcdServers   []string  `json:"etcdServers,omitzero"`
	ControlOnly   bool      `json:"controlOnly,omitzero"` // no node in this process
}

// Same reports whether both say the same of the same start of a cluster.
func (rec Record) Same(other Record) bool {
	return rec.Name == other.Name && rec.DataDir == other.DataDir && rec.Started.Equal(other.Started)
}

// Directories are those that go with the cluster when they are empty then. A
// record of an earlier version does not know them.
func (rec Record) Directories() []string {
	if !rec.Settled {
		return []string{rec.DataDir}
	}
	return rec.Made
}

// CheckData reports that the data which the cluster must have is not in its
// directory, as when a disk is not mounted: nothing may be started in place of
// it, for that would be an empty cluster, and one without the settings that
// close it to strangers.
func (rec Record) CheckData() error {
	missing := func(name string) error {
		_, err := os.Lstat(filepath.Join(rec.DataDir, name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("the data of cluster %s is not in %s, where %s is missing: mount its disk or put back what is lost, or forget the cluster with coracle down --name=%s --yes", rec.Name, rec.DataDir, name, rec.Name)
		}
		return err
	}
	if !rec.Settled {
		return nil
	}
	if err := missing(settingsName); err != nil || !rec.Served {
		return err
	}
	if s, err := ReadSettings(rec.DataDir); err != nil || s.externalStore() {
		return err
	}
	return missing("etcd/member")
}

// CheckOwn reports that the data of another cluster are in the directory of this
// one, as when two disks were swapped: whatever is done there is done to the
// other. Data that nobody can read are nobody else's.
func (rec Record) CheckOwn() error {
	if s, err := ReadSettings(rec.DataDir); err == nil && s.Name != rec.Name {
		return fmt.Errorf("%s holds the data of cluster %s, not of cluster %s: put each where it was (are their disks swapped?)", rec.DataDir, s.Name, rec.Name)
	}
	return nil
}

// ErrNoCluster says that no cluster of that name is on this machine.
var ErrNoCluster = errors.New("no such cluster on this machine")

// Registry is the folder of records.
type Registry struct{ root string }

// NewRegistry returns the registry below root (Root, or a test's folder).
func NewRegistry(root string) Registry { return Registry{root: root} }

func (r Registry) path(name string) string {
	return filepath.Join(r.root, "clusters", name+".json")
}

// Folder is where the records are.
func (r Registry) Folder() string { return filepath.Join(r.root, "clusters") }

// DataDir is the default data directory of a cluster.
func (r Registry) DataDir(name string) string { return filepath.Join(r.root, name) }

// ErrDamaged says that a record cannot be read.
var ErrDamaged = errors.New("the record is damaged")

// maxRecord bounds what is read as a record, in bytes.
const maxRecord = 1 << 20

// Get returns the record of a cluster, or ErrNoCluster. What a record names is
// ended and removed with the cluster, so nobody else may be able to write it.
func (r Registry) Get(name string) (Record, error) {
	raw, err := sharedfile.ReadOwn(r.path(name), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, ErrNoCluster
	}
	if err != nil {
		return Record{}, asRoot(err)
	}
	var rec Record
	if err = json.Unmarshal(raw, &rec); err == nil {
		err = rec.validate(name)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w (%w): say where the data of cluster %s is with coracle up --name=%s --data-dir=DIR, or down in place of up", r.path(name), ErrDamaged, err, name, name)
	}
	return rec, nil
}

// validate reports what cannot be the record of the cluster called name.
func (rec Record) validate(name string) error {
	own := DefaultsOf(name, 0)
	switch {
	case rec.Name != name || rec.DataDir == "":
		return fmt.Errorf("it names cluster %q", rec.Name)
	case rec.NFTable != "" && rec.NFTable != own.NFTable:
		return fmt.Errorf("it names the nftables table %q", rec.NFTable)
	case rec.CgroupRoot != "" && rec.CgroupRoot != own.Cgroup:
		return fmt.Errorf("it names the control group %q", rec.CgroupRoot)
	}
	return nil
}

// Names are those of the clusters that have records, sorted.
func (r Registry) Names() ([]string, error) {
	entries, err := os.ReadDir(r.Folder())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if name, isRecord := strings.CutSuffix(e.Name(), ".json"); isRecord && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names, asRoot(err)
}

// asRoot says what to do about an error of permission.
func asRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("read the records of the clusters (as root, use sudo): %w", err)
	}
	return err
}

// Put writes a record; the write is atomic. The Delete of another cluster may
// take the empty folders away between two steps, which are then done again.
func (r Registry) Put(rec Record) error {
	raw, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	const attempts = 100
	for range attempts {
		if err = os.MkdirAll(filepath.Dir(r.path(rec.Name)), 0o700); err == nil {
			err = keepFile(r.path(rec.Name), append(raw, '\n'))
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// Delete removes a record, and what a Put of it has left that was killed. The
// registry's folders go with the last one's lock.
func (r Registry) Delete(name string) error {
	if err := sharedfile.RemoveUnfinished(r.path(name)); err != nil {
		return err
	}
	if err := os.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.removeEmpty()
	return nil
}

// removeEmpty removes the registry's folders when they are empty.
func (r Registry) removeEmpty() {
	for _, dir := range []string{filepath.Join(r.root, "clusters"), r.root} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // not empty: other clusters are here
		}
	}
}

// registryPatience is how long other commands on this machine are waited for.
const registryPatience = 30 * time.Second

// Locked runs f while no other process of this machine plans a cluster or
// changes a kubeconfig, so that two that start at once never choose the same
// slot and never lose each other's contexts. It must not be nested. The lock
// is a file in a folder that only root can open; whoever holds it for longer
// than some seconds is named.
func (r Registry) Locked(ctx context.Context, f func() error) error {
	l, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if entries, err := os.ReadDir(filepath.Join(r.root, "clusters")); len(entries) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)) {
			_ = os.Remove(l.File().Name()) // whoever waits for it takes the next one
		}
		r.removeEmpty()
		_ = l.Release()
	}()
	return f()
}

func (r Registry) lock(ctx context.Context) (*sharedfile.Lock, error) {
	for {
		if err := os.MkdirAll(r.root, 0o700); err != nil {
			return nil, fmt.Errorf("keep records of the clusters (as root, use sudo): %w", err)
		}
		err := closeToOthers(r.root)
		if err == nil {
			var l *sharedfile.Lock
			if l, err = sharedfile.Acquire(ctx, filepath.Join(r.root, lockName), holderOf("", os.Getpid()), registryPatience); err == nil {
				return l, nil
			}
		}
		if !errors.Is(err, fs.ErrNotExist) { // the folder was taken away with the last cluster
			return nil, err
		}
	}
}

// FreeSlot returns the slot of the cluster called name if it has one, else
// the lowest that no record has and free accepts; MaxSlots when there is none.
func FreeSlot(all []Record, name string, free func(slot int) bool) int {
	var taken []int
	for _, rec := range all {
		if rec.Name == name {
			return rec.Slot
		}
		taken = append(taken, rec.Slot)
	}
	slot := 0
	for slot < MaxSlots && (slices.Contains(taken, slot) || !free(slot)) {
		slot++
	}
	return slot
}

// Defaults are what a cluster in a slot occupies when nothing else is asked
// for. Slot 0 has upstream's ports; the others are moved by twenty a slot.
type Defaults struct {
	Ports                                     Ports
	ServiceCIDR, ClusterCIDR, NFTable, Cgroup string
}

// InnerPortsFree reports whether nobody listens on the ports of these defaults
// that no flag of its own moves: all but the API server's.
func (d Defaults) InnerPortsFree() bool {
	p := d.Ports
	for _, port := range []int{p.Manager, p.Scheduler, p.Kubelet, p.KubeletHealthz, p.ProxyHealthz, p.ProxyMetrics, p.DNS} {
		if PortsFree("", map[string]int{"": port}) != nil {
			return false
		}
	}
	return true
}

// MaxSlots is how many clusters fit side by side.
const MaxSlots = 32

// DefaultsOf returns the defaults of a slot.
func DefaultsOf(name string, slot int) Defaults {
	move := 20 * slot
	return Defaults{
		Ports: Ports{
			Secure: 6443 + slot, Manager: 10257 + move, Scheduler: 10259 + move,
			Kubelet: 10250 + move, KubeletHealthz: 10248 + move,
			ProxyHealthz: 10256 + move, ProxyMetrics: 10249 + move, DNS: 10053 + move,
		},
		ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 96+slot),
		ClusterCIDR: fmt.Sprintf("10.%d.0.0/16", 244-slot),
		NFTable:     "coracle-" + name,
		Cgroup:      "/coracle-" + name,
	}
}
