package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Preflight checks that this machine can carry a cluster with a node. Each
// problem is one line that says what to do.
func Preflight(withNode bool) error {
	if !withNode {
		return nil
	}
	var problems []error
	if os.Geteuid() != 0 {
		problems = append(problems, errors.New("running containers needs root: use sudo, or --nodes=0 for a control plane alone"))
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !strings.Contains(string(filesystems), "overlay") {
		problems = append(problems, errors.New("the kernel has no overlayfs: load it with modprobe overlay"))
	}
	if err := netfilterAvailable(); err != nil {
		problems = append(problems, fmt.Errorf("the kernel has no nftables (%w): load it with modprobe nf_tables", err))
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || len(cgroups) == 0 {
		problems = append(problems, errors.New("no cgroups are mounted: mount cgroup2 at /sys/fs/cgroup"))
	}
	return errors.Join(problems...)
}

// netfilterAvailable opens a netfilter netlink socket (protocol 12).
func netfilterAvailable() error {
	const netfilter = 12
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, netfilter)
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}

// AddressError says that this machine does not have an address.
type AddressError struct{ Address string }

func (e *AddressError) Error() string { return "this machine has no address " + e.Address }

// PortsFree checks that every port can be listened on; flags names the flag
// that moves each. It fails with an AddressError for an address of another
// machine.
func PortsFree(address string, ports map[string]int) error {
	var problems []error
	for flag, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			return &AddressError{Address: address}
		}
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			problems = append(problems, fmt.Errorf("listen on port %d of %s (%w): choose another with %s", port, address, err, flag))
			continue
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("port %d is taken: stop what listens there, or choose another with %s", port, flag))
			continue
		}
		if err := l.Close(); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// RuntimeAnswers checks that something listens on the socket of a container
// runtime that others run.
func RuntimeAnswers(endpoint string) error {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return errors.New("want the socket of a CRI runtime, as unix:///run/containerd/containerd.sock")
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return fmt.Errorf("no runtime answers: %w", err)
	}
	return conn.Close()
}

// CheckNames reports paths, and a name of the node, with which a cluster could
// be started and would never work.
func CheckNames(s Settings) error {
	for _, path := range []struct{ flag, value string }{{"data-dir", s.DataDir}, {"bundle", s.Bundle}, {"kubeconfig", s.Kubeconfig}} {
		if !utf8.ValidString(path.value) {
			return fmt.Errorf("--%s=%q: the path is not UTF-8, and the cluster's settings, which are JSON, could not name it: choose another", path.flag, path.value)
		}
	}
	if s.Nodes == 0 {
		return nil
	}
	if s.ContainerRuntimeEndpoint == "" && strings.ContainsAny(s.DataDir, `:,\`) {
		return fmt.Errorf(`--data-dir=%s: no container could start there, for the options of an overlay file system cannot name a directory with a colon, comma or backslash: choose another`, s.DataDir)
	}
	if problems := validation.IsDNS1123Subdomain(s.NodeName); len(problems) > 0 {
		return fmt.Errorf("the node would be called %s after this host, which no node can be (%s): give --node-name", s.NodeName, problems[0])
	}
	return nil
}
