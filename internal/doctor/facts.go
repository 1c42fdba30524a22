package doctor

import (
	"net/netip"
	"time"
)

// Facts holds what Read finds on a machine.
type Facts struct {
	Ports     []Port
	Disk      Disk
	Memory    Memory
	Clock     Clock
	DNS       DNS
	Proxy     Proxy
	Inotify   Inotify
	OpenFiles uint64 // the limit of this process

	// Node says that the cluster has a node on the machine. Without one, the
	// following is not known.
	Node      bool
	Preflight []string // problems of host.Preflight
	Cgroups   Cgroups
	OOM       OOM
	Inbound   []int // the ports that pods send to
	Firewall  []Chain
	Routes    []Route
	Leftovers []Leftover
	// Roots has the root directories of the kubelets of a cluster that runs, and whether
	// what drivers in pods mount there reaches other pods.
	Roots map[string]bool
	// Encrypt says that the pod network is encrypted, and Encryption why this machine
	// cannot do that; nil if it can.
	Encrypt    bool
	Encryption error
}

// OOM is whether the processes of the cluster have the OOM scores that they set.
type OOM struct {
	Permitted bool // this process may lower its score
	Running   bool // the cluster runs, and Score is known
	Score     int  // adjustment of its supervisor's score
}

// Cgroups are the control groups that this process could give to pods.
type Cgroups struct {
	Version     int // 0 if none are mounted
	Controllers []string
}

// Port is a port that a cluster listens on.
type Port struct {
	Flag   string // the flag that sets it; empty if there is none
	Number int
	Err    error  // why it cannot be used
	Holder string // who listens on it, if that is known
}

// Disk is the disk of a data directory.
type Disk struct {
	Dir         string
	Free, Total uint64 // bytes
	FreeInodes  uint64
	Inodes      uint64        // 0 if the file system has no fixed number
	Sync        time.Duration // of a typical fsync; 0 if unknown
	Err         error
}

// Memory is the memory of the machine, in bytes.
type Memory struct{ Available int64 }

// Clock is the state of the machine's clock.
type Clock struct {
	Now          time.Time
	Synchronized bool
	NotBefore    time.Time // of the cluster's authority; zero if there is none
}

// DNS holds the content of the machine's resolv.conf.
type DNS struct {
	File     string
	Servers  []netip.Addr
	Err      error
	Services netip.Prefix // the addresses of the cluster's Services
	Upstream bool         // systemd-resolved keeps a file with the true servers
}

// Proxy holds the settings of HTTP proxies in the environment.
type Proxy struct {
	Variable, Value string   // the first variable that is set
	Except          string   // no_proxy
	Needed          []string // what must not go through the proxy
}

// Chain is a base chain of nftables that drops what it does not accept.
type Chain struct{ Family, Table, Name, Hook string }

// Route is a route of the machine into a range of the cluster.
type Route struct {
	Flag        string // the flag of the range
	Range       netip.Prefix
	Destination netip.Prefix
	Interface   string
}

// Leftover is something that a removed cluster has left on this machine, and
// how to remove it.
type Leftover struct{ Cluster, What, Remove string }

// Inotify has limits of the kernel for one user, and what this user uses.
type Inotify struct{ Instances, Watches, Used int }
