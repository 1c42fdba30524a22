package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes/oomscore"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// Options say which cluster the machine is examined for.
type Options struct {
	Node        bool // it has a node on this machine
	Known       bool // it is on this machine, so that routes into its ranges are its own
	Supervisor  int  // process of it if it runs: ports that it or a child holds are its own
	DataDir     string
	BindAddress string
	Ports       []Port // Flag and Number
	Inbound     []int  // the ports that pods send to
	// ServiceCIDR and ClusterCIDR are ranges, as cluster.Options has them.
	ServiceCIDR, ClusterCIDR string
	NodeCIDR                 string    // range of the addresses of several nodes; "" for one
	NotBefore                time.Time // since when its keys are valid; zero for a new cluster
	Clusters                 []string  // the clusters on this machine, also those that cannot be read
	Encrypt                  bool      // the pod network is encrypted
}

// resolvedFile has the true servers if systemd-resolved runs.
const resolvedFile = "/run/systemd/resolve/resolv.conf"

// Read examines the machine. It leaves out what it cannot find out and, for a
// cluster without a node, what only nodes need. It writes and removes one small
// file below DataDir.
func Read(o Options) *Facts {
	services, pods := ranges(o.ServiceCIDR), ranges(o.ClusterCIDR)
	f := &Facts{
		Node: o.Node, Ports: readPorts(o), Inbound: o.Inbound, Disk: readDisk(o.DataDir), Clock: readClock(o.NotBefore),
		Proxy: readProxy(append(services, pods...)), Inotify: readInotify(), OpenFiles: readOpenFiles(),
	}
	f.Memory.Available = availableMemory()
	if !o.Node {
		f.DNS = readDNS("/etc/resolv.conf", nil) // it serves no DNS that could be in a loop
		return f
	}
	f.DNS = readDNS("/etc/resolv.conf", services)
	f.Cgroups, f.OOM = readCgroups(), readOOM(o.Supervisor)
	if err := host.Preflight(true); err != nil {
		f.Preflight = strings.Split(err.Error(), "\n")
	}
	if !o.Known {
		f.Routes = slices.Concat(readRoutes("--service-cidr", services), readRoutes("--cluster-cidr", pods), readRoutes("--node-cidr", ranges(o.NodeCIDR)))
	}
	f.Firewall, f.Leftovers = readFirewall(o.Clusters), readLeftovers(o.Clusters)
	if o.Supervisor != 0 {
		f.Roots, _ = host.SharedRoots(o.DataDir)
	}
	if f.Encrypt = o.Encrypt; o.Encrypt {
		f.Encryption = wireguard.Check()
	}
	return f
}

// ranges parses a comma-separated list of ranges.
func ranges(list string) []netip.Prefix {
	var out []netip.Prefix
	for r := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(r); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// readDisk examines the disk of a directory, or of the nearest one above it that
// exists.
func readDisk(dir string) Disk {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	d := Disk{Dir: dir}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		d.Err = fmt.Errorf("the space at %s: %w", dir, err)
		return d
	}
	size := uint64(fs.Frsize)
	d.Free, d.Total, d.FreeInodes, d.Inodes = fs.Bavail*size, fs.Blocks*size, fs.Ffree, fs.Files
	d.Sync, d.Err = syncTime(dir)
	return d
}

// syncTime returns how long it typically takes to write durably, as etcd does for
// each change.
func syncTime(dir string) (time.Duration, error) {
	const writes, limit = 11, 3 * time.Second
	f, err := probeFile(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var took []time.Duration
	block := make([]byte, 2048)
	for begin := time.Now(); len(took) < writes && (len(took) == 0 || time.Since(begin) < limit); {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("write durably to %s: %w", dir, err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// probeFile opens a new file and removes its name at once, so that a doctor that
// is killed later leaves no file.
func probeFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".coracle-doctor-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// availableMemory returns how many bytes programs can use in addition, or 0.
func availableMemory() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "MemAvailable:" {
			kilobytes, _ := strconv.ParseInt(words[1], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

func readClock(notBefore time.Time) Clock {
	var state unix.Timex
	result, err := unix.Adjtimex(&state)
	const unsynchronized = 5 // TIME_ERROR
	return Clock{Now: time.Now(), NotBefore: notBefore, Synchronized: err == nil && result != unsynchronized}
}

// readProxy returns the proxy of the environment. Clusters must reach this
// machine and the given ranges without a proxy.
func readProxy(needed []netip.Prefix) Proxy {
	var p Proxy
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		if value := os.Getenv(name); value != "" {
			p.Variable, p.Value = name, withoutLogin(value)
			break
		}
	}
	p.Except = cmp.Or(os.Getenv("NO_PROXY"), os.Getenv("no_proxy"))
	for _, r := range needed {
		p.Needed = append(p.Needed, r.String())
	}
	return p
}

// withoutLogin returns the URL of a proxy without the login in it.
func withoutLogin(url string) string {
	scheme, rest, has := strings.Cut(url, "://")
	if !has {
		scheme, rest = "", url
	} else {
		scheme += "://"
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = rest[i+1:]
	}
	return scheme + rest
}

func readInotify() Inotify {
	return Inotify{Instances: number("/proc/sys/fs/inotify/max_user_instances"), Watches: number("/proc/sys/fs/inotify/max_user_watches"), Used: usedInstances()}
}

// readOOM examines the scores of a cluster with the given supervisor, 0 if it does
// not run.
func readOOM(supervisor int) OOM {
	var o OOM
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) == nil {
		o.Permitted = data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
	}
	if supervisor != 0 {
		score, err := oomscore.Of(supervisor)
		o.Running, o.Score = err == nil, score
	}
	return o
}

// number returns the number in a file, or 0.
func number(path string) int {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	return n
}

// usedInstances counts the inotify instances of this user.
func usedInstances() int {
	used := 0
	eachFile(func(pid, target string) {
		if target != "anon_inode:inotify" && target != "anon_inode:[inotify]" {
			return
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+pid, &st) == nil && int(st.Uid) == os.Geteuid() {
			used++
		}
	})
	return used
}

// eachFile calls see with each open file of each process that can be seen.
func eachFile(see func(pid, target string)) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return
	}
	for _, process := range processes {
		files, err := os.ReadDir(process + "/fd")
		if err != nil {
			continue
		}
		for _, file := range files {
			if target, err := os.Readlink(process + "/fd/" + file.Name()); err == nil {
				see(filepath.Base(process), target)
			}
		}
	}
}

func readOpenFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Max
}

// readCgroups returns the control groups that are mounted.
func readCgroups() Cgroups {
	if raw, err := os.ReadFile(cgroupMount + "/cgroup.controllers"); err == nil {
		return Cgroups{Version: 2, Controllers: strings.Fields(string(raw))}
	}
	c := Cgroups{}
	for _, name := range []string{"cpu", "memory", "pids"} {
		if _, err := os.Stat(filepath.Join(cgroupMount, name, "cgroup.procs")); err == nil {
			c.Version, c.Controllers = 1, append(c.Controllers, name)
		}
	}
	return c
}

func readDNS(file string, services []netip.Prefix) DNS {
	d := DNS{File: file}
	if len(services) > 0 {
		d.Services = services[0]
	}
	if _, err := os.Stat(resolvedFile); err == nil {
		d.Upstream = true
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		d.Err = err
		return d
	}
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			d.Servers = append(d.Servers, a)
		}
	}
	return d
}
