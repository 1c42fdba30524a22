package node

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Machine is what the kubelet reads off the computer it runs on.
type Machine interface {
	// Capacity is all there is: cpu, memory, ephemeral-storage and huge pages.
	Capacity() (v1.ResourceList, error)
	// Info identifies machine, kernel and operating system.
	Info() v1.NodeSystemInfo
	// Free is what is left now.
	Free() (Free, error)
}

// Free is what a machine has left of what pods can use up. A total of 0
// means that the resource is not measured.
type Free struct {
	MemoryBytes, MemoryTotal int64 // available without swapping
	DiskBytes, DiskTotal     int64
	Inodes, InodesTotal      int64
	PIDs, PIDsTotal          int64
}

// Local is the machine that this process runs on. Disk is a path on the file
// system that keeps the pods' data.
type Local struct{ Disk string }

func meminfo(name string) int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) >= 2 && fields[0] == name+":" {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n * 1024
		}
	}
	return 0
}

func (l *Local) statfs() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	path := l.Disk
	for {
		err := unix.Statfs(path, &st)
		if err == nil || path == "/" {
			return st, err
		}
		path = filepath.Dir(path)
	}
}

// Capacity implements Machine.
func (l *Local) Capacity() (v1.ResourceList, error) {
	memory := meminfo("MemTotal")
	if memory == 0 {
		return nil, fmt.Errorf("/proc/meminfo has no MemTotal")
	}
	st, err := l.statfs()
	if err != nil {
		return nil, fmt.Errorf("stat the file system of %s: %w", l.Disk, err)
	}
	list := v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(memory, resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(st.Blocks)*st.Bsize, resource.BinarySI),
	}
	pages, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	for _, dir := range pages {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		raw, _ := os.ReadFile(filepath.Join(dir, "nr_hugepages"))
		count, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		size := resource.NewQuantity(kb*1024, resource.BinarySI)
		list[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(count*kb*1024, resource.BinarySI)
	}
	return list, nil
}

func line(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// Info implements Machine.
func (l *Local) Info() v1.NodeSystemInfo {
	info := v1.NodeSystemInfo{
		MachineID: line("/etc/machine-id"), SystemUUID: line("/sys/class/dmi/id/product_uuid"), BootID: line("/proc/sys/kernel/random/boot_id"),
		KernelVersion: line("/proc/sys/kernel/osrelease"), OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, OSImage: "Linux",
	}
	if info.SystemUUID == "" {
		info.SystemUUID = info.MachineID
	}
	for _, text := range strings.Split(line("/etc/os-release"), "\n") {
		if name, ok := strings.CutPrefix(text, "PRETTY_NAME="); ok {
			info.OSImage = strings.Trim(name, `"`)
		}
	}
	return info
}

// Free implements Machine.
func (l *Local) Free() (Free, error) {
	st, err := l.statfs()
	if err != nil {
		return Free{}, err
	}
	f := Free{
		MemoryBytes: meminfo("MemAvailable"), MemoryTotal: meminfo("MemTotal"),
		DiskBytes: int64(st.Bavail) * st.Bsize, DiskTotal: int64(st.Blocks) * st.Bsize,
		Inodes: int64(st.Ffree), InodesTotal: int64(st.Files),
	}
	f.PIDsTotal, _ = strconv.ParseInt(line("/proc/sys/kernel/pid_max"), 10, 64)
	if fields := strings.Fields(line("/proc/loadavg")); len(fields) > 3 {
		_, tasks, _ := strings.Cut(fields[3], "/")
		used, _ := strconv.ParseInt(tasks, 10, 64)
		f.PIDs = f.PIDsTotal - used
	}
	return f, nil
}

// Fixed is a machine in memory.
type Fixed struct {
	Resources v1.ResourceList
	System    v1.NodeSystemInfo
	Left      Free
}

// Capacity implements Machine.
func (f *Fixed) Capacity() (v1.ResourceList, error) { return f.Resources, nil }

// Info implements Machine.
func (f *Fixed) Info() v1.NodeSystemInfo { return f.System }

// Free implements Machine.
func (f *Fixed) Free() (Free, error) { return f.Left, nil }

// DefaultIP is the machine's address on the way to the world: of the
// interface with the default route, else the first that is not loopback.
func DefaultIP() (net.IP, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err == nil {
		for _, r := range routes {
			if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
				continue
			}
			if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
				if addresses, err := netlink.AddrList(link, netlink.FAMILY_V4); err == nil && len(addresses) > 0 {
					return addresses[0].IP, nil
				}
			}
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var loopback net.IP
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.To4() == nil {
			continue
		}
		if !n.IP.IsLoopback() {
			return n.IP, nil
		}
		loopback = n.IP
	}
	if loopback == nil {
		return nil, fmt.Errorf("the machine has no address")
	}
	return loopback, nil
}

// SystemReserved adds up what is kept for the system: systemReserved and
// kubeReserved.
func SystemReserved(c *kubeletconfig.KubeletConfiguration) (v1.ResourceList, error) {
	total := v1.ResourceList{}
	for _, list := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reserved %s %q is not a quantity: %w", name, text, err)
			}
			sum := total[v1.ResourceName(name)]
			sum.Add(q)
			total[v1.ResourceName(name)] = sum
		}
	}
	return total, nil
}

// Reserved is what pods cannot request: what is kept for the system and the
// hard eviction threshold of memory.
func Reserved(c *kubeletconfig.KubeletConfiguration) (v1.ResourceList, error) {
	total, err := SystemReserved(c)
	if err != nil {
		return nil, err
	}
	if text := c.EvictionHard["memory.available"]; text != "" && !strings.HasSuffix(text, "%") {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("evictionHard memory.available %q is not a quantity: %w", text, err)
		}
		sum := total[v1.ResourceMemory]
		sum.Add(q)
		total[v1.ResourceMemory] = sum
	}
	return total, nil
}

// Allocatable is what is left of the capacity for pods.
func Allocatable(capacity, reserved v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		if r, ok := reserved[name]; ok {
			left.Sub(r)
			if left.Sign() < 0 {
				left = *resource.NewQuantity(0, q.Format)
			}
		}
		out[name] = left
	}
	return out
}
