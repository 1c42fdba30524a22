package doctor

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/host"
)

// healthy returns the facts of a machine without a problem.
func healthy() *Facts {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	return &Facts{
		Node:      true,
		Cgroups:   Cgroups{Version: 2, Controllers: []string{"cpuset", "cpu", "memory", "pids"}},
		OOM:       OOM{Permitted: true},
		Ports:     []Port{{Flag: "--secure-port", Number: 6443}, {Number: 10250}},
		Disk:      Disk{Dir: "/var/lib", Free: 20 * gib, Total: 40 * gib, Inodes: 1e6, FreeInodes: 9e5, Sync: 2 * time.Millisecond},
		Memory:    Memory{Available: 4 * gib},
		Clock:     Clock{Now: now, Synchronized: true, NotBefore: now.Add(-time.Hour)},
		DNS:       DNS{File: "/etc/resolv.conf", Servers: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Services: netip.MustParsePrefix("10.96.0.0/16")},
		Inotify:   Inotify{Instances: 8192, Watches: 524288, Used: 40},
		OpenFiles: 1 << 20,
	}
}

// TestDiagnose checks the findings about machines with one problem each.
func TestDiagnose(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   []string // check, status, cause and advice of the findings that are not OK
	}{
		"healthy": {change: func(*Facts) {}},
		"no overlayfs": {func(f *Facts) { f.Preflight = []string{"the kernel has no overlayfs: load it with modprobe overlay"} },
			[]string{"kernel|failed|the kernel has no overlayfs|load it with modprobe overlay"}},
		"no memory controller": {func(f *Facts) { f.Cgroups.Controllers = []string{"cpu", "pids"} },
			[]string{"cgroups|failed|control groups of version 2 have no controller memory|start the machine with cgroup_enable=memory"}},
		"no control groups": {func(f *Facts) { f.Cgroups = Cgroups{} }, []string{"cgroups|failed|no control groups are mounted"}},
		"scores that cannot be lowered": {func(f *Facts) { f.OOM = OOM{} },
			[]string{"oom scores|warning|this machine does not permit processes to lower their OOM scores: when memory is short, the kernel may end the cluster's processes before pods|give the container that coracle runs in the capability SYS_RESOURCE"}},
		"scores that its unit has lowered": {change: func(f *Facts) { f.OOM = OOM{Running: true, Score: -999} }},
		"scores of another start": {func(f *Facts) { f.OOM = OOM{Permitted: true, Running: true} },
			[]string{"oom scores|warning|the processes of the cluster have the OOM score adjustment 0: when memory is short, the kernel may end them before pods|coracle restart"}},
		"shared directories": {change: func(f *Facts) { f.Roots = map[string]bool{"/data/kubelet": true, "/data/nodes/2/kubelet": true} }},
		"a directory that is not shared": {func(f *Facts) { f.Roots = map[string]bool{"/data/kubelet": true, "/data/nodes/2/kubelet": false} },
			[]string{"mounts|warning|/data/nodes/2/kubelet is not on a shared mount: what drivers mount in their pods does not reach others, and containers with mountPropagation there do not start|restart this machine"}},
		"port": {func(f *Facts) { f.Ports[0].Err, f.Ports[0].Holder = errors.New("taken"), "k3s-server (process 7)" },
			[]string{"ports|failed|k3s-server (process 7) listens on port 6443|end what listens there, or choose another port with --secure-port"}},
		"inner port":   {func(f *Facts) { f.Ports[1].Err = errors.New("address already in use") }, []string{"ports|failed|port 10250 cannot be used: address already in use|end what listens there"}},
		"full disk":    {func(f *Facts) { f.Disk.Free = 1 << 20 }, []string{"disk|failed|0.0 of 40.0 GiB are free at /var/lib|remove files"}},
		"little space": {func(f *Facts) { f.Disk.Free = gib }, []string{"disk|warning|1.0 of 40.0 GiB"}},
		"inodes":       {func(f *Facts) { f.Disk.FreeInodes = 5 }, []string{"disk|failed|the file system of /var/lib has 5 free inodes"}},
		"slow disk":    {func(f *Facts) { f.Disk.Sync = 80 * time.Millisecond }, []string{"disk|warning|writing durably takes 80ms at /var/lib"}},
		"stuck disk":   {func(f *Facts) { f.Disk.Sync = 2 * time.Second }, []string{"disk|failed|writing durably takes 2s"}},
		"read-only":    {func(f *Facts) { f.Disk.Err = errors.New("read-only file system") }, []string{"disk|failed|read-only file system|give a directory"}},
		"memory":       {func(f *Facts) { f.Memory.Available = 300 << 20 }, []string{"memory|warning|300 MiB are available"}},
		"clock behind": {func(f *Facts) { f.Clock.NotBefore = f.Clock.Now.Add(time.Hour) },
			[]string{"clock|failed|it is 2026-11-01 12:00:00 by the clock, and the cluster's keys are valid from 2026-11-01 13:00:00|set the clock"}},
		"clock alone": {func(f *Facts) { f.Clock.Synchronized = false }, []string{"clock|warning|nothing keeps the clock right"}},
		"no resolver": {func(f *Facts) { f.DNS.Servers = nil }, []string{"dns|warning|/etc/resolv.conf names no server"}},
		"loop": {func(f *Facts) { f.DNS.Servers = append(f.DNS.Servers, netip.MustParseAddr("10.96.0.10")) },
			[]string{"dns|failed|/etc/resolv.conf names 10.96.0.10, which is the cluster's own DNS"}},
		"resolved": {func(f *Facts) { f.DNS.Servers, f.DNS.Upstream = []netip.Addr{netip.MustParseAddr("127.0.0.53")}, true },
			[]string{"dns|warning|/etc/resolv.conf names only 127.0.0.53, which pods with dnsPolicy: Default do not reach|up --kubelet-arg=resolv-conf=/run/systemd/resolve/resolv.conf"}},
		"proxy": {func(f *Facts) {
			f.Proxy = Proxy{Variable: "HTTPS_PROXY", Value: "http://proxy:3128", Except: "localhost,10.96.0.0/12", Needed: []string{"10.96.0.0/16", "10.244.0.0/16"}}
		}, []string{"proxy|warning|HTTPS_PROXY=http://proxy:3128 is for 10.244.0.0/16, too, which the proxy does not reach|export NO_PROXY=localhost,10.96.0.0/12,10.244.0.0/16"}},
		"firewall of the machine": {func(f *Facts) {
			f.Firewall, f.Inbound = []Chain{{"inet", "filter", "input", "input"}}, []int{6444, 10270, 10073}
		}, []string{"firewall|warning|chain input of table inet filter drops what it does not accept|accept there what pods send to this machine: from --cluster-cidr to 6444, 10270, 10073"}},
		"firewall": {func(f *Facts) { f.Firewall = []Chain{{"inet", "filter", "forward", "forward"}} },
			[]string{"firewall|warning|chain forward of table inet filter drops what it does not accept|accept what pods send and get there"}},
		"route": {func(f *Facts) {
			f.Routes = []Route{{"--cluster-cidr", netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.244.3.0/24"), "tun0"}}
		}, []string{"routes|failed|this machine has a route to 10.244.3.0/24 by tun0, in the cluster's range 10.244.0.0/16|start a new cluster with another range: --cluster-cidr"}},
		"encryption": {change: func(f *Facts) { f.Encrypt = true }},
		"encryption without a device": {func(f *Facts) { f.Encrypt, f.Encryption = true, errors.New("the kernel has neither") },
			[]string{"encryption|failed|the kernel has neither|modprobe wireguard, or modprobe tun"}},
		"leftover": {func(f *Facts) { f.Leftovers = []Leftover{{"old", "/run/coracle/old", "rm it"}} },
			[]string{"leftovers|warning|/run/coracle/old is there, and cluster old is not known|coracle down --data-dir=DIR if its data are still there, or if nothing of it runs: rm it"}},
		"few inotify instances": {func(f *Facts) { f.Inotify.Instances = 128 },
			[]string{"inotify|warning|fs.inotify.max_user_instances is 128, of which 40 are used: that is little for many pods, which fail with \"too many open files\"|sysctl -w fs.inotify.max_user_instances=8192"}},
		"no inotify instance": {func(f *Facts) { f.Inotify.Instances, f.Inotify.Used = 600, 599 }, []string{`inotify|failed|fs.inotify.max_user_instances is 600, of which 599 are used: programs fail with "too many open files"`}},
		"few watches":         {func(f *Facts) { f.Inotify.Watches = 8192 }, []string{"inotify|warning|fs.inotify.max_user_watches is 8192"}},
		"few files":           {func(f *Facts) { f.OpenFiles = 1024 }, []string{"open files|warning|a process may have 1024 files open"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			c.change(f)
			checkReport(t, Diagnose(f), c.want)
		})
	}
}

// checkReport checks how the findings that are not OK begin.
func checkReport(t *testing.T, report Report, want []string) {
	t.Helper()
	var got []string
	failed := false
	for _, finding := range report.Findings {
		if finding.Cause == "" || (finding.Advice == "") != (finding.Status == OK) {
			t.Errorf("%+v", finding)
		}
		if finding.Status != OK {
			got = append(got, strings.Join([]string{finding.Check, string(finding.Status), finding.Cause, finding.Advice}, "|"))
		}
		failed = failed || finding.Status == Failed
	}
	if report.Failed() != failed || len(got) != len(want) {
		t.Fatalf("failed %v, findings %q; want %q", report.Failed(), got, want)
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}

// Diagnose reports what only nodes need for clusters with nodes only.
func TestDiagnoseWithoutANode(t *testing.T) {
	f := healthy()
	f.Node, f.Cgroups, f.Preflight = false, Cgroups{}, []string{"the kernel has no overlayfs: load it with modprobe overlay"}
	var checks []string
	for _, finding := range Diagnose(f).Findings {
		checks = append(checks, finding.Check)
	}
	if got, want := strings.Join(checks, ", "), "ports, disk, memory, clock, dns, proxy, inotify, open files"; got != want {
		t.Errorf("the findings are about %s, want %s", got, want)
	}
}

// TestRead checks what is found on this machine: a port that this process holds,
// the disk, and the environment. Nothing is left behind.
func TestRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	port := l.Addr().(*net.TCPAddr).Port
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	t.Setenv("https_proxy", "http://user:secret@proxy:3128")
	dir := t.TempDir()
	f := Read(Options{
		Supervisor: math.MaxInt32, // another process than this one, which holds the port
		DataDir:    filepath.Join(dir, "not", "there"), BindAddress: "127.0.0.1", Ports: []Port{{Flag: "--secure-port", Number: port}},
		ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16",
	})
	if p := f.Ports[0]; p.Err == nil || !strings.HasSuffix(p.Holder, "(process "+strconv.Itoa(os.Getpid())+")") {
		t.Errorf("port %d: %+v", port, p)
	}
	if d := f.Disk; d.Dir != dir || d.Err != nil || d.Total == 0 || d.Sync <= 0 {
		t.Errorf("disk: %+v", d)
	}
	if p := f.Proxy; p.Variable != "https_proxy" || p.Value != "http://proxy:3128" || len(p.Needed) != 2 {
		t.Errorf("proxy: %+v", p)
	}
	if f.Memory.Available <= 0 || f.Inotify.Instances == 0 || f.OpenFiles == 0 {
		t.Errorf("memory %+v, inotify %+v, open files %d", f.Memory, f.Inotify, f.OpenFiles)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A doctor that is killed leaves no file.
func TestProbeFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	f, err := probeFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("in the directory are %v, %v", left, err)
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Error(err)
	}
}

func TestReadDNS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("# nameserver 9.9.9.9\nsearch a.example\nnameserver 192.0.2.1\nnameserver here\nnameserver 2001:db8::1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := readDNS(file, nil)
	if len(d.Servers) != 2 || d.Servers[0] != netip.MustParseAddr("192.0.2.1") || d.Err != nil {
		t.Errorf("%+v", d)
	}
	if d := readDNS(file+".absent", nil); d.Err == nil {
		t.Errorf("%+v", d)
	}
}

// The ports that a cluster's supervisor and its child processes hold are the
// cluster's own.
func TestOwnPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, supervisor := range []int{os.Getpid(), os.Getppid()} {
		o := Options{Supervisor: supervisor, BindAddress: "127.0.0.1", Ports: []Port{{Flag: "--secure-port", Number: l.Addr().(*net.TCPAddr).Port}}}
		if p := readPorts(o)[0]; p.Err != nil {
			t.Errorf("of process %d: %+v", supervisor, p)
		}
	}
}

// The ports of a cluster that is not there yet are those that up would choose:
// a slot whose API port another program has is passed over.
func TestExamineChoosesTheSlotOfUp(t *testing.T) {
	registry, settings := host.NewRegistry(t.TempDir()), host.NewSettings()
	settings.Nodes, settings.Options.Name, settings.Options.BindAddress = 0, "test-slot-of-up", "127.0.0.1"
	settings.Options.DataDir = t.TempDir()
	// The higher, the less used. Another run of this test may have the port.
	first := host.MaxSlots - 2
	l, err := listenOn(first)
	for ; err != nil && first > 0; l, err = listenOn(first) {
		first--
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for slot := range first {
		if err := registry.Put(host.Record{Slot: slot, Occupied: host.Occupied{Name: fmt.Sprint("test-slot-", slot), DataDir: t.TempDir()}}); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Examine(registry, settings, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Check == "ports" && f.Status != OK {
			t.Errorf("%+v, want another slot than %d", f, first)
		}
	}
}

// listenOn listens on the API server's port in a slot.
func listenOn(slot int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", host.DefaultsOf("", slot).Ports.Secure))
}
