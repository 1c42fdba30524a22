package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

const (
	settingsVersion = 1
	// maxSettings bounds what is read as settings, in bytes.
	maxSettings = 1 << 20
)

// ErrNoSettings says that a directory holds no cluster.
var ErrNoSettings = errors.New("no cluster's settings are there")

// Ports that a cluster on this machine listens on. cluster.Ports has the same
// fields, so that one converts to the other.
type Ports struct {
	Secure         int `json:"secure"`
	Manager        int `json:"controllerManager"`
	Scheduler      int `json:"scheduler"`
	Kubelet        int `json:"kubelet"`
	KubeletHealthz int `json:"kubeletHealthz"`
	ProxyHealthz   int `json:"proxyHealthz"`
	ProxyMetrics   int `json:"proxyMetrics"`
	DNS            int `json:"dns"`
}

// Settings are everything that makes a cluster on this machine what it is:
// what `coracle up` was told, and what it chose where it was told nothing.
// They are kept with the data, in DATA/settings.json, and are there before
// anything of the cluster starts:
//
//	flags of up ─► Settings.With ─► DATA/settings.json ─► the processes of the cluster
//
// Every process of the cluster reads that one file and nothing else: it calls
// ReadSettings with the data directory and turns the result into
// cluster.Options (clusterOptions in cmd/coracle). The file changes only while
// no process of the cluster runs, by whoever holds the data directory's lock.
type Settings struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	// DataDir is where the settings lie; it is not written, so that a data
	// directory may be moved.
	DataDir string `json:"-"`
	// Told are the flags that were given, sorted; the values of all others
	// were chosen.
	Told []string `json:"told,omitzero"`

	Slot       int    `json:"slot"` // sets the ports and address ranges that are chosen
	Kubeconfig string `json:"kubeconfig"`
	Bundle     string `json:"bundle"`
	LogLevels  string `json:"v"`

	BindAddress string `json:"bindAddress"`
	Ports       Ports  `json:"ports"`
	ServiceCIDR string `json:"serviceCIDR"`
	ClusterCIDR string `json:"clusterCIDR"`
	NodePorts   string `json:"nodePorts"` // range of Services' ports on nodes

	EtcdServers []string `json:"etcdServers,omitzero"` // none is an embedded etcd

	Nodes                    int    `json:"nodes"` // 1, or 0 for a control plane alone
	NodeName                 string `json:"nodeName"`
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint,omitzero"` // of a runtime of others
	CNIConfDir               string `json:"cniConfDir,omitzero"`
	NFTable                  string `json:"nftTable"`
	CgroupRoot               string `json:"cgroupRoot"`

	// Arguments for the components, as name=value of upstream's flags.
	APIServerArgs         []string `json:"apiserverArgs,omitzero"`
	ControllerManagerArgs []string `json:"controllerManagerArgs,omitzero"`
	SchedulerArgs         []string `json:"schedulerArgs,omitzero"`
	KubeletArgs           []string `json:"kubeletArgs,omitzero"`
	ProxyArgs             []string `json:"proxyArgs,omitzero"`
	EtcdArgs              []string `json:"etcdArgs,omitzero"`
}

// SettingsFile is where the settings of the cluster in a data directory are.
func SettingsFile(dataDir string) string { return filepath.Join(dataDir, settingsName) }

const settingsName = "settings.json"

// ReadSettings reads the settings of the cluster in a data directory, and
// fails with ErrNoSettings if it holds none. What the settings say is done with
// all the rights of this process, so neither they nor the directory may be open
// to others: that is a sharedfile.OwnershipError.
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
	s.DataDir = dataDir
	return s, nil
}

func decodeSettings(raw []byte, dataDir string) (Settings, error) {
	damaged := func(err error) error {
		return fmt.Errorf("the file is damaged (%w): mend it, it is JSON, or take the cluster away with coracle down --data-dir=%s", err, dataDir)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(raw, &head); err != nil {
		return Settings{}, damaged(err)
	}
	if head.Version != settingsVersion {
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
	return s, s.validate()
}

// validate reports what cannot be the settings of any cluster. What components
// take is for them to say.
func (s *Settings) validate() error {
	var errs []error
	wrong := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s: %v: want %s", field, value, want))
	}
	if problems := validation.IsDNS1123Label(s.Name); len(problems) > 0 {
		wrong("name", s.Name, problems[0])
	}
	if s.Slot < 0 || s.Slot >= MaxSlots {
		wrong("slot", s.Slot, fmt.Sprintf("0 to %d", MaxSlots-1))
	}
	if s.Nodes < 0 || s.Nodes > 1 {
		wrong("nodes", s.Nodes, "0 or 1")
	}
	for field, path := range map[string]string{"kubeconfig": s.Kubeconfig, "bundle": s.Bundle} {
		if !filepath.IsAbs(path) {
			wrong(field, path, "an absolute path")
		}
	}
	for field, text := range map[string]string{
		"nodeName": s.NodeName, "serviceCIDR": s.ServiceCIDR, "clusterCIDR": s.ClusterCIDR,
		"bindAddress": s.BindAddress,
	} {
		if text == "" {
			wrong(field, `""`, "a value")
		}
	}
	// Whatever has these names is ended and removed with the cluster.
	own := DefaultsOf(s.Name, 0)
	if s.NFTable != own.NFTable {
		wrong("nftTable", s.NFTable, own.NFTable)
	}
	if s.CgroupRoot != own.Cgroup {
		wrong("cgroupRoot", s.CgroupRoot, own.Cgroup)
	}
	if s.Ports.Secure < 1 || s.Ports.Secure > 65535 {
		wrong("ports.secure", s.Ports.Secure, "1 to 65535")
	}
	return errors.Join(errs...)
}

// Write keeps the settings in their data directory. They are there whole, and
// stay after a loss of power, once it returns; after a failure the former ones
// are. Settings that are there already are not written again: a full disk must
// not keep a cluster from being started as it was.
func (s Settings) Write() error {
	s.Version = settingsVersion
	if err := s.validate(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return keepFile(SettingsFile(s.DataDir), append(raw, '\n'))
}

// keepFile makes a file of this user's hold data, durably, unless it does.
func keepFile(path string, data []byte) error {
	if there, err := sharedfile.ReadOwn(path, int64(len(data))); err == nil && bytes.Equal(there, data) {
		return nil
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: data, Mode: 0o600, Durable: true})
}

// NoRoom reports whether an error is that of a disk without room.
func NoRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// SettingsOf are the settings of a cluster of an earlier version, which kept
// none: as far as its record knows them.
func SettingsOf(rec Record) (Settings, error) {
	server, err := url.Parse(rec.Server)
	if err != nil {
		return Settings{}, fmt.Errorf("the record of cluster %s: %w", rec.Name, err)
	}
	s := Settings{
		Version: settingsVersion, Name: rec.Name, DataDir: rec.DataDir, Kubeconfig: rec.Kubeconfig, LogLevels: "1", BindAddress: "0.0.0.0",
		ServiceCIDR: rec.ServiceCIDR, ClusterCIDR: rec.ClusterCIDR, EtcdServers: rec.EtcdServers, Nodes: 1,
		ContainerRuntimeEndpoint: rec.ExternalCRI, CNIConfDir: rec.CNIConfDir, CgroupRoot: rec.CgroupRoot,
	}
	if rec.ControlOnly {
		s.Nodes = 0
	}
	if host := server.Hostname(); host != "127.0.0.1" {
		s.BindAddress = host
	}
	if s.Ports.Secure, err = strconv.Atoi(server.Port()); err != nil {
		return Settings{}, fmt.Errorf("the record of cluster %s: %w", rec.Name, err)
	}
	node, err := os.Hostname()
	if err != nil {
		return Settings{}, err
	}
	s.Complete(rec.Slot, strings.ToLower(node), rec.BundleDir, rec.Kubeconfig)
	return s, nil
}

// externalStore reports whether the objects are in an etcd that is not the
// cluster's own.
func (s *Settings) externalStore() bool {
	return len(s.EtcdServers) > 0 || slices.ContainsFunc(s.APIServerArgs, func(a string) bool { return argumentName(a) == "etcd-servers" })
}

// wasTold reports whether the value of a flag was given.
func (s *Settings) wasTold(flag string) bool { return slices.Contains(s.Told, flag) }

// Complete fills in what was not told: the slot's ports and address ranges,
// and what this machine gives.
func (s *Settings) Complete(slot int, nodeName, bundle, kubeconfig string) {
	d := DefaultsOf(s.Name, slot)
	text := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	if s.NFTable == "" { // never completed before
		secure := s.Ports.Secure
		if s.Slot, s.Ports = slot, d.Ports; secure != 0 {
			s.Ports.Secure = secure
		}
	}
	text(&s.NFTable, d.NFTable)
	text(&s.CgroupRoot, d.Cgroup)
	if s.NodePorts == "" {
		if s.NodePorts = nodePortsOf(s.Slot); s.Nodes == 0 { // it opens none here
			s.NodePorts = upstreamNodePorts
		}
	}
	text(&s.ServiceCIDR, d.ServiceCIDR)
	text(&s.ClusterCIDR, d.ClusterCIDR)
	text(&s.NodeName, nodeName)
	text(&s.Kubeconfig, kubeconfig)
	if !s.wasTold("bundle") { // that of the program that runs, which may be another than before
		s.Bundle = bundle
	}
}
