package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-io/coracle/internal/processes/oomscore"
)

// Diagnose returns what facts mean for a cluster, check by check.
func Diagnose(f *Facts) Report {
	var all []Finding
	for _, check := range []struct {
		find     func(*Facts) []Finding
		nodeOnly bool
	}{
		{kernel, true}, {cgroups, true}, {oomScores, true}, {mounts, true}, {ports, false}, {disk, false}, {memory, false}, {clock, false}, {dns, false}, {proxy, false},
		{firewall, true}, {routes, true}, {encryption, true}, {leftovers, true}, {inotify, false}, {openFiles, false},
	} {
		if f.Node || !check.nodeOnly {
			all = append(all, check.find(f)...)
		}
	}
	return Report{Findings: all}
}

func ok(check, format string, args ...any) []Finding {
	return []Finding{{Check: check, Status: OK, Cause: fmt.Sprintf(format, args...)}}
}

func kernel(f *Facts) []Finding {
	if len(f.Preflight) == 0 {
		return ok("kernel", "overlayfs and nftables are there, and this is root")
	}
	var out []Finding
	for _, problem := range f.Preflight {
		cause, advice := problem, ""
		if i := strings.LastIndex(problem, ": "); i >= 0 {
			cause, advice = problem[:i], problem[i+2:]
		}
		out = append(out, Finding{"kernel", Failed, cause, advice})
	}
	return out
}

func cgroups(f *Facts) []Finding {
	if f.Cgroups.Version == 0 {
		return []Finding{{"cgroups", Failed, "no control groups are mounted at /sys/fs/cgroup", "mount -t cgroup2 none /sys/fs/cgroup"}}
	}
	var missing []string
	for _, needed := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(f.Cgroups.Controllers, needed) {
			missing = append(missing, needed)
		}
	}
	if len(missing) > 0 {
		advice := "start the machine with cgroup_enable=memory on the kernel's command line, and give a container that coracle runs in all controllers"
		return []Finding{{"cgroups", Failed, fmt.Sprintf("control groups of version %d have no controller %s", f.Cgroups.Version, strings.Join(missing, ", ")), advice}}
	}
	return ok("cgroups", "version %d with cpu, memory and pids", f.Cgroups.Version)
}

func oomScores(f *Facts) []Finding {
	const check = "oom scores"
	o := f.OOM
	switch {
	case o.Running && o.Score <= oomscore.Node, !o.Running && o.Permitted:
		return ok(check, "when memory is short, the kernel ends pods before the processes of the cluster")
	case o.Permitted:
		return []Finding{{check, Warning, fmt.Sprintf("the processes of the cluster have the OOM score adjustment %d: when memory is short, the kernel may end them before pods", o.Score), "coracle restart, as root"}}
	}
	return []Finding{{
		check, Warning, "this machine does not permit processes to lower their OOM scores: when memory is short, the kernel may end the cluster's processes before pods",
		"give the container that coracle runs in the capability SYS_RESOURCE, or start coracle with OOMScoreAdjust=-999 in its unit",
	}}
}

func mounts(f *Facts) []Finding {
	var out []Finding
	for _, dir := range slices.Sorted(maps.Keys(f.Roots)) {
		if !f.Roots[dir] {
			out = append(out, Finding{
				"mounts", Warning, fmt.Sprintf("%s is not on a shared mount: what drivers mount in their pods does not reach others, and containers with mountPropagation there do not start", dir),
				"restart this machine: the kubelet shares its directory when it starts with nothing mounted below; or mount --make-rshared /, as systemd does",
			})
		}
	}
	if len(out) == 0 && len(f.Roots) > 0 {
		return ok("mounts", "what drivers mount in their pods reaches others")
	}
	return out
}

func ports(f *Facts) []Finding {
	var out []Finding
	for _, p := range f.Ports {
		if p.Err == nil {
			continue
		}
		finding := Finding{"ports", Failed, fmt.Sprintf("port %d cannot be used: %v", p.Number, p.Err), "end what listens there"}
		if p.Holder != "" {
			finding.Cause = fmt.Sprintf("%s listens on port %d", p.Holder, p.Number)
		}
		if p.Flag != "" {
			finding.Advice += ", or choose another port with " + p.Flag
		}
		out = append(out, finding)
	}
	if len(out) == 0 {
		return ok("ports", "those of the cluster are free or its own")
	}
	return out
}

const (
	gib = 1 << 30
	// failingDisk is the free space below which images and etcd fail soon.
	failingDisk, lowDisk = gib / 4, 2 * gib
	// slowSync is an fsync with which etcd falls behind; etcd wants 10 ms.
	slowSync, failingSync = 25 * time.Millisecond, time.Second
	minInodes             = 10_000
)

func disk(f *Facts) []Finding {
	d := f.Disk
	if d.Err != nil {
		return []Finding{{"disk", Failed, d.Err.Error(), "give a directory on a disk that can be written with --data-dir"}}
	}
	free := fmt.Sprintf("%.1f of %.1f GiB are free at %s", float64(d.Free)/gib, float64(d.Total)/gib, d.Dir)
	makeRoom := "remove files, or choose a directory on another disk with --data-dir"
	var out []Finding
	switch {
	case d.Free < failingDisk:
		out = append(out, Finding{"disk", Failed, free, makeRoom})
	case d.Free < lowDisk:
		out = append(out, Finding{"disk", Warning, free, makeRoom})
	}
	if d.Inodes > 0 && d.FreeInodes < minInodes {
		out = append(out, Finding{"disk", Failed, fmt.Sprintf("the file system of %s has %d free inodes", d.Dir, d.FreeInodes), makeRoom})
	}
	took := d.Sync.Round(10 * time.Microsecond)
	switch {
	case d.Sync >= failingSync:
		out = append(out, Finding{"disk", Failed, fmt.Sprintf("writing durably takes %v at %s", took, d.Dir), "use a faster disk, or end what keeps this one busy"})
	case d.Sync >= slowSync:
		out = append(out, Finding{"disk", Warning, fmt.Sprintf("writing durably takes %v at %s, and each change of an object does so", took, d.Dir), "use a faster disk, such as an SSD, with --data-dir"})
	}
	if len(out) == 0 {
		return ok("disk", "%s, and writing durably takes %v", free, took)
	}
	return out
}

func memory(f *Facts) []Finding {
	const low, failing = 512 << 20, 150 << 20
	available := fmt.Sprintf("%d MiB are available", f.Memory.Available>>20)
	switch {
	case f.Memory.Available <= 0: // unknown
		return nil
	case f.Memory.Available < failing:
		return []Finding{{"memory", Failed, available, "end other programs: a cluster without pods needs some 200 MiB"}}
	case f.Memory.Available < low:
		return []Finding{{"memory", Warning, available, "end other programs if pods are evicted: a cluster without pods needs some 200 MiB"}}
	}
	return ok("memory", "%s", available)
}

func clock(f *Facts) []Finding {
	c := f.Clock
	const set = "set the clock, and let systemd-timesyncd or chrony keep it right"
	switch {
	case c.NotBefore.After(c.Now):
		return []Finding{{"clock", Failed, fmt.Sprintf("it is %s by the clock, and the cluster's keys are valid from %s", c.Now.Format(time.DateTime), c.NotBefore.Format(time.DateTime)), set}}
	case !c.Synchronized:
		return []Finding{{"clock", Warning, "nothing keeps the clock right, as far as the kernel knows", "if certificates and tokens are refused elsewhere: " + set}}
	}
	return ok("clock", "it is kept right")
}

func dns(f *Facts) []Finding {
	d := f.DNS
	if d.Err != nil || len(d.Servers) == 0 {
		cause := d.File + " names no server"
		if d.Err != nil {
			cause = d.Err.Error()
		}
		return []Finding{{"dns", Warning, cause, "write nameserver lines into it, or pods find no names outside of the cluster"}}
	}
	for _, server := range d.Servers {
		if d.Services.Contains(server) {
			return []Finding{{"dns", Failed, fmt.Sprintf("%s names %v, which is the cluster's own DNS: names outside of the cluster go round in a loop", d.File, server), "name the servers of the network there"}}
		}
	}
	if !slices.ContainsFunc(d.Servers, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		f := Finding{"dns", Warning, fmt.Sprintf("%s names only %v, which pods with dnsPolicy: Default do not reach", d.File, d.Servers[0]), "give the servers of the network in a file: up --kubelet-arg=resolv-conf=FILE"}
		if d.Upstream {
			f.Advice = "up --kubelet-arg=resolv-conf=" + resolvedFile
		}
		return []Finding{f}
	}
	return ok("dns", "%s names %v", d.File, d.Servers[0])
}

func proxy(f *Facts) []Finding {
	p := f.Proxy
	if p.Variable == "" {
		return ok("proxy", "none is set")
	}
	var missing []string
	for _, needed := range p.Needed {
		if !exempt(p.Except, needed) {
			missing = append(missing, needed)
		}
	}
	if len(missing) > 0 {
		return []Finding{{"proxy", Warning, fmt.Sprintf("%s=%s is for %s, too, which the proxy does not reach", p.Variable, p.Value, strings.Join(missing, ", ")), "export NO_PROXY=" + strings.Trim(p.Except+","+strings.Join(missing, ","), ",")}}
	}
	return ok("proxy", "%s=%s", p.Variable, p.Value)
}

// exempt reports whether no_proxy has an address, a range or one that contains
// it.
func exempt(except, needed string) bool {
	want, err := netip.ParsePrefix(needed)
	if a, addrErr := netip.ParseAddr(needed); err != nil && addrErr == nil {
		want, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	for entry := range strings.SplitSeq(except, ",") {
		entry = strings.TrimSpace(entry)
		if entry == needed || entry == "*" {
			return true
		}
		if p, prefixErr := netip.ParsePrefix(entry); prefixErr == nil && err == nil && p.Bits() <= want.Bits() && p.Contains(want.Addr()) {
			return true
		}
	}
	return false
}

func firewall(f *Facts) []Finding {
	var inbound []string
	for _, port := range f.Inbound {
		inbound = append(inbound, strconv.Itoa(port))
	}
	advice := map[string]string{
		"input":   "accept there what pods send to this machine: from --cluster-cidr to " + strings.Join(inbound, ", "),
		"forward": "accept what pods send and get there: traffic from and to --cluster-cidr",
	}
	var out []Finding
	for _, c := range f.Firewall {
		out = append(out, Finding{"firewall", Warning, fmt.Sprintf("chain %s of table %s %s drops what it does not accept", c.Name, c.Family, c.Table), advice[c.Hook]})
	}
	if len(out) == 0 {
		return ok("firewall", "no other table of nftables drops by default")
	}
	return out
}

func routes(f *Facts) []Finding {
	var out []Finding
	for _, r := range f.Routes {
		out = append(out, Finding{"routes", Failed, fmt.Sprintf("this machine has a route to %v by %s, in the cluster's range %v", r.Destination, r.Interface, r.Range), "start a new cluster with another range: " + r.Flag})
	}
	if len(out) == 0 {
		return ok("routes", "none is in a range of the cluster")
	}
	return out
}

func encryption(f *Facts) []Finding {
	switch {
	case !f.Encrypt:
		return nil
	case f.Encryption != nil:
		return []Finding{{"encryption", Failed, f.Encryption.Error(), "modprobe wireguard, or modprobe tun; give a container that coracle runs in /dev/net/tun"}}
	}
	return ok("encryption", "WireGuard encrypts what pods of different machines send each other")
}

func leftovers(f *Facts) []Finding {
	var out []Finding
	for _, l := range f.Leftovers {
		out = append(out, Finding{"leftovers", Warning, fmt.Sprintf("%s is there, and cluster %s is not known", l.What, l.Cluster), "coracle down --data-dir=DIR if its data are still there, or if nothing of it runs: " + l.Remove})
	}
	if len(out) == 0 {
		return ok("leftovers", "nothing of removed clusters is left")
	}
	return out
}

const (
	minInstances, minWatches = 512, 65536
	spareInstances           = 16
)

func inotify(f *Facts) []Finding {
	i := f.Inotify
	if i.Instances == 0 {
		return nil
	}
	var out []Finding
	instances := fmt.Sprintf("fs.inotify.max_user_instances is %d, of which %d are used", i.Instances, i.Used)
	raise := "sysctl -w fs.inotify.max_user_instances=8192"
	switch {
	case i.Used+spareInstances > i.Instances:
		out = append(out, Finding{"inotify", Failed, instances + ": programs fail with \"too many open files\"", raise})
	case i.Instances < minInstances:
		out = append(out, Finding{"inotify", Warning, instances + ": that is little for many pods, which fail with \"too many open files\"", raise})
	}
	if i.Watches < minWatches {
		out = append(out, Finding{"inotify", Warning, fmt.Sprintf("fs.inotify.max_user_watches is %d: programs that watch many files fail with \"no space left on device\"", i.Watches), "sysctl -w fs.inotify.max_user_watches=524288"})
	}
	if len(out) == 0 {
		return ok("inotify", "%s, and max_user_watches is %d", instances, i.Watches)
	}
	return out
}

func openFiles(f *Facts) []Finding {
	const few = 65536
	if f.OpenFiles > 0 && f.OpenFiles < few {
		return []Finding{{"open files", Warning, fmt.Sprintf("a process may have %d files open, and pods inherit that", f.OpenFiles), "ulimit -Hn 1048576 as root before up, or LimitNOFILE=infinity in its unit"}}
	}
	return ok("open files", "a process may have %d", f.OpenFiles)
}
