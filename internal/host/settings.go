package host

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/registries"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

const (
	settingsVersion = 2
	// maxSettings bounds a settings file, in bytes.
	maxSettings = 1 << 20
)

// ErrNoSettings reports that a directory holds no cluster.
var ErrNoSettings = errors.New("no cluster's settings are there")

// Settings are the options of a cluster on this machine and how `coracle up`
// came by them. They are stored with the cluster's data, in DATA/settings.json,
// before anything of the cluster starts:
//
//	flags of up ─► Settings.With ─► DATA/settings.json ─► the processes of the cluster
//
// Each process of the cluster reads that file and nothing else (ReadSettings).
// Only the holder of the data directory's lock changes the file, and only while no
// process of the cluster runs, except for Nodes and Options.Node.Each: coracle node
// changes these with the lock of the registry, and Record.LockNodes. With the former, the
// process of the control plane changes Options.EtcdArgs when its member of etcd moves.
type Settings struct {
	Version int `json:"version"`
	// SetFlags are the names of the flags that the user has set, sorted. The
	// values of all others were chosen by Complete.
	SetFlags []string `json:"setFlags,omitzero"`
	// Slot determines the ports and address ranges that Complete chooses.
	Slot       int    `json:"slot"`
	Kubeconfig string `json:"kubeconfig"` // path of the file that has the cluster's context
	// RunDir is the directory of the cluster's sockets. It stays where it was at the
	// first start, whatever the environment says later. See RunDirectory.
	RunDir string `json:"runDir,omitzero"`
	// Found are the keys that were in the data directory before the cluster, relative
	// to it. They stay when the cluster is removed.
	Found []string `json:"found,omitzero"`
	// Nodes is the number of nodes on this machine, 0 for a control plane alone.
	// Options.Node has values in all cases: nodes may be added later, and etcdctl is
	// in its BundleDir. It leaves out how many there are. Its Each also has the nodes
	// that were removed: their numbers are not used again while others are left.
	Nodes int `json:"nodes"`
	// Options are the options that the cluster runs with. The file leaves out
	// DataDir, so that the data directory can be moved.
	Options cluster.Options `json:"options"`
}

// ClusterOptions returns the options for the processes of the cluster. The node
// runs in a process of its own.
func (s Settings) ClusterOptions() cluster.Options {
	s.copyPointers()
	s.Options.Etcd.Socket = EtcdSocket(s.RunDirectory())
	s.Options.Node.SeparateProcess = true
	s.Options.ControlPlane.Manifests = manifestDirectories(s.Options.DataDir)
	s.countNodes()
	if s.Nodes == 0 {
		s.Options.Node = nil
	}
	if s.Options.Simulated.Count == 0 {
		s.Options.Simulated = nil
	}
	return s.Options
}

// RunDirectory returns the directory of the cluster's sockets, also of one that an
// earlier version has started.
func (s *Settings) RunDirectory() string { return cmp.Or(s.RunDir, RunDir(s.Options.Name)) }

// countNodes writes the number of several nodes into the options, with those that were
// removed.
func (s *Settings) countNodes() {
	count := s.Nodes
	for _, n := range s.Options.Node.Each {
		if !n.Exists() {
			count++
		}
	}
	if s.Options.Node.Count = 0; count > 1 {
		s.Options.Node.Count = count
	}
}

// Occupied returns what the cluster occupies, for its record.
func (s Settings) Occupied() Occupied {
	s.copyPointers()
	s.countNodes()
	return occupied(s.Options)
}

// Shown returns the options for people to see: with the names of the registries in
// place of the registries file, which has logins.
func (s Settings) Shown() cluster.Options {
	s.copyPointers()
	s.countNodes()
	s.Options.Node.Registries = registries.Summary(s.Options.Node.Registries)
	return s.Options
}

// copyPointers replaces the parts that s shares with its copies.
func (s *Settings) copyPointers() {
	etcd, node, simulated := cluster.EtcdOptions{}, nodeOf(s.Options), cluster.SimulatedNodes{}
	if s.Options.Etcd != nil {
		etcd = *s.Options.Etcd
	}
	if s.Options.Simulated != nil {
		simulated = *s.Options.Simulated
	}
	s.Options.Etcd, s.Options.Node, s.Options.Simulated = &etcd, &node, &simulated
}

// nodeOf returns the node's options; they are empty if there are none.
func nodeOf(o cluster.Options) cluster.NodeOptions {
	if o.Node == nil {
		return cluster.NodeOptions{}
	}
	return *o.Node
}

// SettingsFile returns the path of the settings in a data directory.
func SettingsFile(dataDir string) string { return filepath.Join(dataDir, settingsName) }

const settingsName = "settings.json"

// ReadSettings reads the settings of the cluster in a data directory. It returns
// ErrNoSettings if the directory holds none, and a sharedfile.OwnershipError if
// other users can write the file or the directory: this process acts on the
// settings with all of its rights.
func ReadSettings(dataDir string) (Settings, error) {
	path := SettingsFile(dataDir)
	raw, err := sharedfile.ReadOwn(path, maxSettings)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return Settings{}, fmt.Errorf("%s: %w", dataDir, ErrNoSettings)
	case errors.Is(err, sharedfile.ErrTooLarge):
		return Settings{}, fmt.Errorf("%s is larger than a cluster's settings can be (%d bytes)", path, maxSettings)
	case err != nil:
		return Settings{}, fmt.Errorf("read a cluster's settings: %w", err)
	}
	dir, err := os.Stat(dataDir)
	if err != nil {
		return Settings{}, err
	}
	if err := sharedfile.CheckOwner(dataDir, dir); err != nil {
		return Settings{}, err
	}
	s, err := decodeSettings(raw, dataDir)
	if err != nil {
		return Settings{}, fmt.Errorf("%s: %w", path, err)
	}
	s.Options.DataDir = dataDir
	return s, nil
}

// decodeSettings decodes a settings file of this or an earlier version.
func decodeSettings(raw []byte, dataDir string) (Settings, error) {
	damaged := func(err error) error {
		return fmt.Errorf("the file is damaged (%w): repair it, it is JSON, or remove the cluster with coracle down --data-dir=%s", err, dataDir)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(raw, &head); err != nil {
		return Settings{}, damaged(err)
	}
	switch head.Version {
	case settingsVersion:
	case 1:
		var err error
		if raw, err = upgradeSettings(raw); err != nil {
			return Settings{}, damaged(err)
		}
	default:
		return Settings{}, fmt.Errorf("the settings have version %d and this program knows version %d: use the program that the cluster was started with", head.Version, settingsVersion)
	}
	var s, known Settings
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		if json.Unmarshal(raw, &known) == nil { // only the names of fields are unknown
			return Settings{}, fmt.Errorf("the settings were written by a newer version (%w): use the program that the cluster was started with", err)
		}
		return Settings{}, damaged(err)
	}
	s.copyPointers()
	return s, s.validate()
}

// validate returns an error if s cannot be the settings of a cluster. It does not
// check what components check themselves.
func (s *Settings) validate() error {
	var errs []error
	wrong := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s: %v: want %s", field, value, want))
	}
	if problems := validation.IsDNS1123Label(s.Options.Name); len(problems) > 0 {
		wrong("options.name", s.Options.Name, problems[0])
	}
	if s.Slot < 0 || s.Slot >= MaxSlots {
		wrong("slot", s.Slot, fmt.Sprintf("0 to %d", MaxSlots-1))
	}
	if s.Nodes < 0 || s.Nodes > clusterdefaults.MaxNodes {
		wrong("nodes", s.Nodes, fmt.Sprintf("0 to %d", clusterdefaults.MaxNodes))
	}
	if each := nodeOf(s.Options).Each; len(each) > clusterdefaults.MaxNodes {
		wrong("options.node.each", len(each), fmt.Sprintf("up to %d nodes", clusterdefaults.MaxNodes))
	}
	for field, path := range map[string]string{"kubeconfig": s.Kubeconfig, "options.node.bundleDir": nodeOf(s.Options).BundleDir} {
		if !filepath.IsAbs(path) {
			wrong(field, path, "an absolute path")
		}
	}
	for field, text := range map[string]string{
		"options.nodeName": s.Options.NodeName, "options.serviceCIDR": s.Options.ServiceCIDR, "options.clusterCIDR": s.Options.ClusterCIDR,
		"options.bindAddress": s.Options.BindAddress,
	} {
		if text == "" {
			wrong(field, `""`, "a value")
		}
	}
	// Everything with these names is removed with the cluster.
	own, node := DefaultsOf(s.Options.Name, 0), nodeOf(s.Options)
	if node.NFTable != own.NFTable {
		wrong("options.node.nftTable", node.NFTable, own.NFTable)
	}
	if node.CgroupRoot != own.Cgroup {
		wrong("options.node.cgroupRoot", node.CgroupRoot, own.Cgroup)
	}
	if s.Options.Ports.Secure < 1 || s.Options.Ports.Secure > 65535 {
		wrong("options.ports.secure", s.Options.Ports.Secure, "1 to 65535")
	}
	return errors.Join(errs...)
}

// Write stores the settings in their data directory, durably and in one step:
// after an error the former settings are there. Write leaves a file with the same
// content as it is, so that a cluster can start with its old settings when the disk
// is full.
func (s Settings) Write() error {
	s.Version = settingsVersion
	if err := s.validate(); err != nil {
		return err
	}
	path := SettingsFile(s.Options.DataDir)
	s.Options.DataDir = ""
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return keepFile(path, append(raw, '\n'))
}

// keepFile durably replaces a file of this user with data, unless it holds data
// already.
func keepFile(path string, data []byte) error {
	if holds(path, data) {
		return nil
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: data, Mode: 0o600, Durable: true})
}

// holds reports whether a file of this user has the content data.
func holds(path string, data []byte) bool {
	there, err := sharedfile.ReadOwn(path, int64(len(data)))
	return err == nil && bytes.Equal(there, data)
}

// NoRoom reports whether an error says that the disk or a quota is full.
func NoRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// externalStore reports whether the objects are in an etcd that is not the
// cluster's own.
func (s *Settings) externalStore() bool {
	return s.Options.Etcd != nil && len(s.Options.Etcd.Servers) > 0 || slices.ContainsFunc(s.Options.APIServerArgs, func(a string) bool { return argumentName(a) == "etcd-servers" })
}

// HoldsMember reports whether the data directory has a member of an etcd cluster.
// The other members count it, and refuse one of the same name without its data.
func (s *Settings) HoldsMember() bool {
	if !slices.ContainsFunc(s.Options.EtcdArgs, func(a string) bool { return argumentName(a) == "initial-cluster" }) {
		return false
	}
	_, err := os.Lstat(filepath.Join(s.Options.DataDir, "etcd", "member", "wal")) // etcd makes it after it has found its place among the members
	return err == nil
}

// isSet reports whether the user has set a flag.
func (s *Settings) isSet(flag string) bool { return slices.Contains(s.SetFlags, flag) }

// Complete fills in what the user has not set: from the slot its ports and
// address ranges, and the values of this machine that are passed in. A value
// that was chosen once is kept, except for the bundle: that is the running
// program's.
func (s *Settings) Complete(slot int, nodeName, bundle, kubeconfig string) {
	s.copyPointers()
	d := DefaultsOf(s.Options.Name, slot)
	setDefault := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	if s.Options.Ports.Manager == 0 { // never completed before
		secure := s.Options.Ports.Secure
		if s.Slot, s.Options.Ports = slot, d.Ports; secure != 0 {
			s.Options.Ports.Secure = secure
		}
	}
	if s.Options.Encrypt && s.Options.Ports.WireGuard == 0 {
		s.Options.Ports.WireGuard = clusterdefaults.WireGuardPort + s.Slot
	}
	setDefault(&s.Options.Node.NFTable, d.NFTable)
	setDefault(&s.Options.Node.CgroupRoot, d.Cgroup)
	if s.Options.NodePorts == "" {
		if s.Options.NodePorts = nodePortsOf(s.Slot); s.Nodes == 0 { // it opens none here
			s.Options.NodePorts = upstreamNodePorts
		}
	}
	setDefault(&s.Options.ServiceCIDR, d.ServiceCIDR)
	setDefault(&s.Options.ClusterCIDR, d.ClusterCIDR)
	if s.Options.Node.CIDR == d.NodeCIDR && !s.isSet("node-cidr") {
		s.Options.Node.CIDR = "" // an earlier version's default, of whatever family the pods are
	}
	setDefault(&s.Options.Node.CIDR, clusterdefaults.NodeCIDRs(s.Options.ClusterCIDR, d.NodeCIDR, d.NodeCIDRIPv6))
	setDefault(&s.Options.NodeName, nodeName)
	setDefault(&s.Kubeconfig, kubeconfig)
	if os.Geteuid() != 0 { // that of root is always the same
		setDefault(&s.RunDir, RunDir(s.Options.Name))
	}
	if !s.isSet("bundle") {
		s.Options.Node.BundleDir = bundle
	}
}
