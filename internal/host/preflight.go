package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Preflight returns an error if this machine cannot run a node. Each problem is
// one line that says what to do.
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

// AddressError reports that this machine does not have an address.
type AddressError struct{ Address string }

func (e *AddressError) Error() string { return "this machine has no address " + e.Address }

// PortsFree returns an error if a port is taken. ports maps the flag that sets
// a port to the port. The error is an AddressError if the address is not this
// machine's.
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

// maxSocket is the length of the longest path that a unix socket can have, in
// bytes (unix(7)).
const maxSocket = 107

// CheckNames returns an error for paths and a node name with which a cluster
// could start but never work.
func CheckNames(s Settings) error {
	for _, f := range s.flags() {
		if f.path && !utf8.ValidString(*f.text) {
			return fmt.Errorf("--%s=%q: the path is not UTF-8, and the cluster's settings, which are JSON, could not name it: choose another", f.name, *f.text)
		}
	}
	if socket := EtcdSocket(s.RunDirectory()); len(socket) > maxSocket {
		return fmt.Errorf("--name=%s: the path of a socket would be %s, and can have %d bytes: choose a shorter name, or a shorter XDG_STATE_HOME", s.Options.Name, socket, maxSocket)
	}
	if s.Nodes == 0 {
		return nil
	}
	if s.Options.Node.ContainerRuntimeEndpoint == "" && strings.ContainsAny(s.Options.DataDir, `:,\`) {
		return fmt.Errorf(`--data-dir=%s: no container could start there, for the options of an overlay file system cannot name a directory with a colon, comma or backslash: choose another`, s.Options.DataDir)
	}
	if problems := validation.IsDNS1123Subdomain(s.Options.NodeName); len(problems) > 0 {
		return fmt.Errorf("the node would be called %s after this host, which is not a valid node name (%s): give --node-name", s.Options.NodeName, problems[0])
	}
	return nil
}
