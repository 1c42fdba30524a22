// Package containerd runs the bundled container runtime of a cluster: it writes
// containerd's configuration, starts and supervises the process, imports the
// bundled images, and finally removes everything.
//
//	coracle ──starts, watches──► containerd ──starts──► shim ──► runc ──► container
//	   ╎                             │                    │
//	   ╎ killed: containerd stays,   │ killed: shims and  │ holds the container's
//	   ╎ the next coracle adopts it  │ containers stay    │ standard streams
//	   ╎                             │
//	   └╌╌ Purge removes all of it, whatever is still alive
//
// Each cluster has its own containerd, with its own root, state and sockets:
// the namespace "k8s.io" of containerd's CRI plugin is fixed, and clusters on
// one machine must not share it.
package containerd

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/coracle-io/coracle/internal/registries"
)

// Namespace is the containerd namespace of the CRI plugin.
const Namespace = "k8s.io"

// SandboxImage is the bundled image of pod sandboxes.
const SandboxImage = "coracle.internal/pause:1.0"

// Config configures a Runtime. All paths are absolute.
type Config struct {
	// BundleDir is the output of `make bundle`: bin/, cni/ and images/.
	BundleDir string
	// DataDir holds what survives a reboot: images, snapshots, container
	// metadata, the configuration and the log. It belongs to the package.
	DataDir string
	// RunDir holds sockets and the state of running containers. It should be on
	// a tmpfs and short, because socket paths are limited to 107 bytes. It
	// belongs to the package.
	RunDir string
	// CNIConfDir is watched for the CNI configuration. Until a file is there,
	// the runtime reports that its network is not ready.
	CNIConfDir string
	// CNIBinDirs are directories of CNI plugins besides that of BundleDir, and before
	// it. They may be missing.
	CNIBinDirs []string
	// RegistryDir has containerd's hosts.toml files, one directory for each
	// registry (mirrors, certificates). It may be missing.
	RegistryDir string
	// Registries says how registries are reached; nil is nothing. The
	// configuration of a registry in RegistryDir takes precedence.
	Registries *registries.File
	// DropInDir has files of containerd's configuration (*.toml) that are merged
	// into its own, such as further runtimes. It may be missing.
	DropInDir string
	// CgroupRoot is the cgroup, such as /kubepods-coracle, in which the kubelet
	// creates this cluster's pods, and nothing else is. Purge kills and removes
	// it in each hierarchy. If it is empty, cgroups are left to runc.
	CgroupRoot string
}

// Runtime is a cluster's containerd.
type Runtime struct {
	config Config
	ready  chan struct{}
	// answered closes ready once.
	answered sync.Once
}

// New checks the configuration and returns a Runtime that is not running. It
// changes nothing on the machine.
func New(config Config) (*Runtime, error) {
	for name, path := range map[string]string{
		"BundleDir": config.BundleDir, "DataDir": config.DataDir,
		"RunDir": config.RunDir, "CNIConfDir": config.CNIConfDir,
	} {
		if !filepath.IsAbs(path) || filepath.Clean(path) == "/" {
			return nil, fmt.Errorf("containerd: %s is %q; it must be an absolute path below /", name, path)
		}
	}
	r := &Runtime{config: config, ready: make(chan struct{})}
	if len(r.config.socket()) > 100 {
		return nil, fmt.Errorf("containerd: the run directory %s is too long for a socket's path; choose one of at most 80 characters", config.RunDir)
	}
	if config.DataDir == config.RunDir {
		return nil, errors.New("containerd: DataDir and RunDir must differ")
	}
	return r, nil
}

// Endpoint returns the CRI endpoint for the kubelet, such as
// unix:///run/coracle/coracle/containerd.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.config.socket() }

// Ready returns a channel that is closed once the CRI answers and the bundled
// images are imported.
func (r *Runtime) Ready() <-chan struct{} { return r.ready }

// LogFile returns the path of containerd's log.
func (r *Runtime) LogFile() string { return filepath.Join(r.config.DataDir, "containerd.log") }

// rootDir returns containerd's root.
func (r *Runtime) rootDir() string { return filepath.Join(r.config.DataDir, rootName) }

// The paths of what a runtime with this configuration makes and runs.

func (c *Config) socket() string     { return filepath.Join(c.RunDir, "containerd.sock") }
func (c *Config) configFile() string { return filepath.Join(c.DataDir, "config.toml") }
func (c *Config) stateDir() string   { return filepath.Join(c.RunDir, stateName) }
func (c *Config) runcRoot() string   { return filepath.Join(c.RunDir, "runc") }

// pluginDirs returns the directories of CNI plugins. The first that has one counts.
func (c *Config) pluginDirs() []string {
	return append(slices.Clone(c.CNIBinDirs), filepath.Join(c.BundleDir, "cni"))
}

func (c *Config) program(name string) string {
	return filepath.Join(c.BundleDir, "bin", name)
}

// shimSocketDir returns the directory of the shims' sockets. containerd allows
// it 42 bytes; for a longer run directory it is a short one next to it.
func (c *Config) shimSocketDir() string {
	if dir := filepath.Join(c.RunDir, "s"); len(dir) <= 42 {
		return dir
	}
	return fmt.Sprintf("/run/coracle-s-%x", sha256.Sum256([]byte(c.RunDir)))[:28]
}
