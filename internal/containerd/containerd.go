// Package containerd runs the bundled container runtime of one cluster: it
// writes containerd's configuration, starts and supervises the process, loads
// the bundled images and, at the end, removes every trace.
//
//	coracle ──starts, watches──► containerd ──starts──► shim ──► runc ──► container
//	   ╎                             │                    │
//	   ╎ killed: containerd stays,   │ killed: shims and  │ holds the container's
//	   ╎ the next coracle adopts it  │ containers stay    │ standard streams
//	   ╎                             │
//	   └╌╌ Purge removes all of it, whoever is still alive
//
// Every cluster has a containerd of its own, with its own root, state and
// sockets, so that the fixed namespace "k8s.io" of containerd's CRI plugin
// never mixes two clusters on one machine.
package containerd

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
)

// Namespace is where containerd's CRI plugin keeps all it makes.
const Namespace = "k8s.io"

// SandboxImage is the bundled image that holds a pod's namespaces.
const SandboxImage = "coracle.internal/pause:1.0"

// Config says where one cluster's runtime lives. All paths are absolute.
type Config struct {
	// BundleDir is what `make bundle` built: bin/, cni/ and images/.
	BundleDir string
	// DataDir holds what outlives a reboot: images, snapshots, container
	// metadata, the configuration and the log. The package owns it.
	DataDir string
	// RunDir holds sockets and the state of running containers; best on a
	// tmpfs, and short, because socket paths are limited to 107 bytes. The
	// package owns it.
	RunDir string
	// CNIConfDir is watched for the network configuration; until a file is
	// there the runtime reports that its network is not ready.
	CNIConfDir string
	// RegistryDir has containerd's hosts.toml files, one folder a registry
	// (mirrors, certificates). It may be missing.
	RegistryDir string
	// SystemdCgroup is true when the kubelet's cgroup driver is systemd.
	SystemdCgroup bool
	// CgroupRoot is the cgroup (such as /kubepods-coracle) under which the
	// kubelet puts this cluster's pods and no one else anything; Purge kills
	// and removes it in every hierarchy. Empty leaves cgroups to runc.
	CgroupRoot string
	// Debug makes containerd log each request.
	Debug bool
}

// Runtime is one cluster's containerd.
type Runtime struct {
	config Config
	ready  chan struct{}
	// answered closes ready, once.
	answered sync.Once
}

// New checks the configuration; it touches nothing.
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
	if len(r.socket()) > 100 {
		return nil, fmt.Errorf("containerd: the run directory %s is too long for a socket's path; choose one of at most 80 characters", config.RunDir)
	}
	if config.DataDir == config.RunDir {
		return nil, errors.New("containerd: DataDir and RunDir must differ")
	}
	return r, nil
}

// Endpoint is the CRI address for the kubelet, such as
// unix:///run/coracle/coracle/containerd.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.socket() }

// Ready is closed once the CRI answers and the bundled images are there.
func (r *Runtime) Ready() <-chan struct{} { return r.ready }

// LogFile is where containerd's own log goes.
func (r *Runtime) LogFile() string { return filepath.Join(r.config.DataDir, "containerd.log") }

func (r *Runtime) socket() string     { return filepath.Join(r.config.RunDir, "containerd.sock") }
func (r *Runtime) configFile() string { return filepath.Join(r.config.DataDir, "config.toml") }
func (r *Runtime) stateDir() string   { return filepath.Join(r.config.RunDir, stateName) }
func (r *Runtime) runcRoot() string   { return filepath.Join(r.config.RunDir, "runc") }

func (r *Runtime) program(name string) string {
	return filepath.Join(r.config.BundleDir, "bin", name)
}

// shimSocketDir holds the shims' sockets. containerd allows it 42 bytes; a
// longer run directory gets a short stand-in beside it.
func (r *Runtime) shimSocketDir() string {
	if dir := filepath.Join(r.config.RunDir, "s"); len(dir) <= 42 {
		return dir
	}
	return fmt.Sprintf("/run/coracle-s-%x", sha256.Sum256([]byte(r.config.RunDir)))[:28]
}
