// Package host manages the clusters on this machine for the command line: their
// records, settings and data directories, their contexts in kubeconfigs, checks
// before a start, and complete removal.
package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Record says what a cluster occupies on this machine, and what of it runs.
// Settings has the options that it runs with. A record is written before
// anything of the cluster starts and removed last, so that what a killed process
// leaves can be found and removed, even without the cluster's data.
type Record struct {
	Slot       int    `json:"slot"`            // see Settings.Slot
	Kubeconfig string `json:"kubeconfig"`      // path of the file that has the cluster's context
	RunDir     string `json:"runDir,omitzero"` // see Settings.RunDir
	Nodes      int    `json:"nodes"`           // how many are on this machine, 0 for a control plane alone
	Occupied   `json:"options"`

	Made    []string `json:"made,omitzero"`    // the directories that were made for the data, the outermost first
	Merged  Merged   `json:"merged"`           // what MergeContext changed in Kubeconfig
	Settled bool     `json:"settled,omitzero"` // the data directory has settings
	Served  bool     `json:"served,omitzero"`  // the API server has been ready, so that there are objects

	PID           int       `json:"pid"`           // of the supervisor, 0 for none
	PIDStart      uint64    `json:"pidStart"`      // its start time in clock ticks since boot
	Unit          string    `json:"unit,omitzero"` // the systemd unit that runs it
	Server        string    `json:"server"`        // URL of the API server
	Started       time.Time `json:"started"`
	BinaryVersion string    `json:"binaryVersion"`
}

// Occupied says what a cluster occupies: what other clusters on this machine must
// leave to it, and what its removal needs without its data.
type Occupied struct {
	Name        string `json:"name"`
	DataDir     string `json:"dataDir"`
	ServiceCIDR string `json:"serviceCIDR,omitzero"`
	ClusterCIDR string `json:"clusterCIDR,omitzero"`
	NodePorts   string `json:"nodePorts,omitzero"` // also if an argument of the API server sets it
	// Ports are those that the cluster listens on, also if arguments of its components
	// set them. A record of an earlier version does not have them.
	Ports cluster.Ports `json:"ports,omitzero"`
	Etcd  Etcd          `json:"etcd,omitzero"`
	// Node is where containers, mounts, rules and control groups are. It has
	// values also without a node.
	Node cluster.NodeOptions `json:"node,omitzero"`
}

// Etcd is the etcd with a cluster's objects.
type Etcd struct {
	Servers []string `json:"servers,omitzero"` // of an external etcd, which keeps the objects when the cluster is removed
}

// occupied returns what a cluster with these options occupies.
func occupied(o cluster.Options) Occupied {
	out := Occupied{
		Name: o.Name, DataDir: o.DataDir, ServiceCIDR: o.ServiceCIDR, ClusterCIDR: o.ClusterCIDR, NodePorts: nodePortRange(o), Ports: portsOf(o), Node: nodeOf(o),
	}
	out.Node.Registries, out.Node.Each = "", nil // removal does not need them, and the first has logins
	if o.Etcd != nil {
		out.Etcd.Servers = o.Etcd.Servers
	}
	return out
}

// Same reports whether both are records of the same start of a cluster.
func (rec Record) Same(other Record) bool {
	return rec.Name == other.Name && rec.DataDir == other.DataDir && rec.Started.Equal(other.Started)
}

// RunDirectory returns the directory of the cluster's sockets, also of one that an
// earlier version has started.
func (rec Record) RunDirectory() string { return cmp.Or(rec.RunDir, RunDir(rec.Name)) }

// Directories returns those that are removed with the cluster if they are empty
// then. A record of an earlier version does not list them.
func (rec Record) Directories() []string {
	if !rec.Settled {
		return []string{rec.DataDir}
	}
	return rec.Made
}

// CheckData returns an error if data that the cluster must have is not in its
// directory, as when a disk is not mounted. Starting then would create an empty
// cluster in its place.
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
	s, err := ReadSettings(rec.DataDir)
	switch {
	case err != nil || s.externalStore():
		return err
	case s.Options.Node.Joined != nil:
		return missing("node/kubelet.kubeconfig")
	}
	return missing("etcd/member")
}

// CheckOwn returns an error if the data of another cluster are in the directory
// of this one, as when two disks were swapped. Damaged settings are no error.
func (rec Record) CheckOwn() error {
	if s, err := ReadSettings(rec.DataDir); err == nil && s.Options.Name != rec.Name {
		return fmt.Errorf("%s holds the data of cluster %s, not of cluster %s: put each where it was (are their disks swapped?)", rec.DataDir, s.Options.Name, rec.Name)
	}
	return nil
}

// ErrNoCluster reports that this machine has no cluster of that name.
var ErrNoCluster = errors.New("no such cluster on this machine")

// Registry is the directory of all clusters' records.
type Registry struct{ root string }

// NewRegistry returns the registry below root, which is Root or the directory of
// a test.
func NewRegistry(root string) Registry { return Registry{root: root} }

func (r Registry) path(name string) string {
	return filepath.Join(r.root, "clusters", name+".json")
}

// Folder returns the directory of the records.
func (r Registry) Folder() string { return filepath.Join(r.root, "clusters") }

// DataDir returns the default data directory of a cluster.
func (r Registry) DataDir(name string) string { return filepath.Join(r.root, name) }

// ErrDamaged reports that a record cannot be read.
var ErrDamaged = errors.New("the record is damaged")

// maxRecord bounds a record, in bytes.
const maxRecord = 1 << 20

// Get returns the record of a cluster. It returns ErrNoCluster or ErrDamaged,
// and a sharedfile.OwnershipError if other users can write the record: what it
// names is ended and removed with the cluster.
func (r Registry) Get(name string) (Record, error) {
	rec, _, err := r.read(name)
	return rec, err
}

// read reads the record of a cluster. The record of an earlier version, which
// stored no settings, also has the options that the cluster ran with.
func (r Registry) read(name string) (Record, cluster.Options, error) {
	raw, err := sharedfile.ReadOwn(r.path(name), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, cluster.Options{}, ErrNoCluster
	}
	if err != nil {
		return Record{}, cluster.Options{}, readable(err)
	}
	var stored struct {
		Record
		Options cluster.Options `json:"options"`
	}
	if raw, err = upgradeRecord(raw); err == nil {
		err = json.Unmarshal(raw, &stored)
	}
	stored.Occupied = occupied(stored.Options)
	if err == nil {
		err = stored.validate(name)
	}
	if err != nil {
		return Record{}, cluster.Options{}, fmt.Errorf("%s: %w (%w): say where the data of cluster %s is with coracle up --name=%s --data-dir=DIR, or down in place of up", r.path(name), ErrDamaged, err, name, name)
	}
	return stored.Record, stored.Options, nil
}

// SettingsOf returns the settings of a cluster that an earlier version started
// without storing them, as far as its record has them.
func (r Registry) SettingsOf(name string) (Settings, error) {
	rec, options, err := r.read(name)
	if err != nil {
		return Settings{}, err
	}
	node, err := os.Hostname()
	if err != nil {
		return Settings{}, err
	}
	s := Settings{Version: settingsVersion, Slot: rec.Slot, Kubeconfig: rec.Kubeconfig, Nodes: rec.Nodes, Options: options}
	s.Complete(rec.Slot, strings.ToLower(node), rec.Node.BundleDir, rec.Kubeconfig)
	return s, nil
}

// validate returns an error if rec cannot be the record of the cluster called
// name.
func (rec Record) validate(name string) error {
	own, node := DefaultsOf(name, 0), rec.Node
	switch {
	case rec.Name != name || rec.DataDir == "":
		return fmt.Errorf("it names cluster %q", rec.Name)
	case node.NFTable != "" && node.NFTable != own.NFTable:
		return fmt.Errorf("it names the nftables table %q", node.NFTable)
	case node.CgroupRoot != "" && node.CgroupRoot != own.Cgroup:
		return fmt.Errorf("it names the control group %q", node.CgroupRoot)
	}
	return nil
}

// Names returns the names of the clusters that have records, sorted.
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
	return names, readable(err)
}

// ownDirectory is the advice for a directory of records that the user cannot use.
const ownDirectory = "set HOME, or XDG_DATA_HOME and XDG_STATE_HOME, to directories of this user"

// readable adds advice to an error of permission.
func readable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("read the records of the clusters (%s): %w", ownDirectory, err)
	}
	return err
}

// Put writes a record in one step. It retries if the Delete of another cluster
// removes the empty directories before the record is written.
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

// Delete removes a record, also an unfinished one, and the registry's
// directories if they are empty. A missing record is no error.
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

// removeEmpty removes the registry's directories if they are empty.
func (r Registry) removeEmpty() {
	for _, dir := range []string{filepath.Join(r.root, "clusters"), r.root} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // not empty: other clusters are here
		}
	}
}

// registryTimeout is how long Locked waits for other commands.
const registryTimeout = 30 * time.Second

// Locked runs f while no other process of this machine plans a cluster or
// changes a kubeconfig. So clusters that start at once never choose the same
// slot, and never lose each other's contexts. Calls must not be nested. The
// error names a process that holds the lock for longer than registryTimeout.
func (r Registry) Locked(ctx context.Context, f func() error) error {
	l, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if entries, err := os.ReadDir(filepath.Join(r.root, "clusters")); len(entries) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)) {
			_ = os.Remove(l.File().Name()) // waiting processes create it again
		}
		r.removeEmpty()
		_ = l.Release()
	}()
	return f()
}

func (r Registry) lock(ctx context.Context) (*sharedfile.Lock, error) {
	for {
		if err := os.MkdirAll(r.root, 0o700); err != nil {
			return nil, fmt.Errorf("keep records of the clusters (%s): %w", ownDirectory, err)
		}
		err := closeToOthers(r.root)
		if err == nil {
			var l *sharedfile.Lock
			if l, err = sharedfile.Acquire(ctx, filepath.Join(r.root, lockName), holderOf("", os.Getpid()), registryTimeout); err == nil {
				return l, nil
			}
		}
		if !errors.Is(err, fs.ErrNotExist) { // the directory was removed with the last cluster
			return nil, err
		}
	}
}
