package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/nodeaddress"
)

// Machine is the computer that the kubelet runs on.
type Machine interface {
	// Capacity returns the totals of cpu, memory, ephemeral-storage and huge
	// pages.
	Capacity() (v1.ResourceList, error)
	// Info identifies the machine, its kernel and its operating system.
	Info() v1.NodeSystemInfo
	// Free returns what is free now.
	Free() (Free, error)
	// FileSystem returns what is free on the file system that path is on. A
	// missing path is an error that matches fs.ErrNotExist.
	FileSystem(path string) (FileSystem, error)
}

// Addressed is a Machine whose addresses may change while the kubelet runs.
type Addressed interface {
	// Addresses returns the addresses of its node, nil if they stay as they are
	// configured.
	Addresses() *nodeaddress.List
}

// FileSystem holds the free and total bytes and inodes of a file system. A
// total of 0 means that it is not measured.
type FileSystem struct {
	Bytes, Total        int64
	Inodes, InodesTotal int64
	// Device is the same for all paths on a file system, and another one for other file
	// systems of the machine.
	Device uint64
}

// Free holds the free and total amounts of the machine's resources that pods
// can exhaust. A total of 0 means that the resource is not measured.
type Free struct {
	MemoryBytes, MemoryTotal int64 // without swapping
	DiskBytes, DiskTotal     int64
	Inodes, InodesTotal      int64
	DiskDevice               uint64 // as FileSystem.Device
	PIDs, PIDsTotal          int64
	// Images and Containers are the file systems of the runtime's images and of the
	// writable layers of containers. Machine.Free does not measure them, nor what all pods
	// together have left of their memory.
	Images, Containers               FileSystem
	PodsMemoryBytes, PodsMemoryTotal int64
}

// Disk returns the file system that keeps the pods' data.
func (f *Free) Disk() FileSystem {
	return FileSystem{Bytes: f.DiskBytes, Total: f.DiskTotal, Inodes: f.Inodes, InodesTotal: f.InodesTotal, Device: f.DiskDevice}
}

// Local is the machine that this process runs on.
type Local struct {
	Disk string            // a path on the file system that keeps the pods' data
	IPs  *nodeaddress.List // see Addressed
}

// Addresses implements Addressed.
func (l *Local) Addresses() *nodeaddress.List { return l.IPs }

// meminfo returns a value of /proc/meminfo in bytes, 0 if it is not there.
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

// disk describes the file system of Disk, or of its nearest existing parent
// directory.
func (l *Local) disk() (FileSystem, error) {
	path := l.Disk
	for {
		found, err := fileSystem(path)
		if err == nil || path == "/" {
			return found, err
		}
		path = filepath.Dir(path)
	}
}

// fileSystem describes the file system at a path.
func fileSystem(path string) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, err
	}
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return FileSystem{}, err
	}
	f := FileSystem{
		Bytes: int64(st.Bavail) * st.Bsize, Total: int64(st.Blocks) * st.Bsize, Inodes: int64(st.Ffree), InodesTotal: int64(st.Files), Device: file.Dev,
	}
	if uint32(st.Type) == unix.BTRFS_SUPER_MAGIC {
		// Subvolumes share the space, and have device numbers of their own. The kernel mixes
		// the number of the subvolume into the second half of the id only.
		f.Device = 1<<63 | uint64(uint32(st.Fsid.Val[0]))
	}
	return f, nil
}

// Capacity implements Machine.
func (l *Local) Capacity() (v1.ResourceList, error) {
	memory := meminfo("MemTotal")
	if memory == 0 {
		return nil, fmt.Errorf("/proc/meminfo has no MemTotal")
	}
	disk, err := l.disk()
	if err != nil {
		return nil, fmt.Errorf("stat the file system of %s: %w", l.Disk, err)
	}
	list := v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(memory, resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(disk.Total, resource.DecimalSI),
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

// line returns the content of a file without white space around it, "" if the
// file cannot be read.
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
	if swap := meminfo("SwapTotal"); swap > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	inside := mapsUsers(line("/proc/self/uid_map"))
	info.RunningInUserNamespace = &inside
	for _, text := range strings.Split(line("/etc/os-release"), "\n") {
		if name, ok := strings.CutPrefix(text, "PRETTY_NAME="); ok {
			info.OSImage = strings.Trim(name, `"`)
		}
	}
	return info
}

// mapsUsers reports whether a uid_map is that of a user namespace other than the first,
// which has all users as they are. A kernel without user namespaces has no such file.
func mapsUsers(uidMap string) bool {
	fields := strings.Fields(uidMap)
	return len(fields) != 0 && !slices.Equal(fields, []string{"0", "0", strconv.Itoa(math.MaxUint32)})
}

// Free implements Machine.
func (l *Local) Free() (Free, error) {
	disk, err := l.disk()
	if err != nil {
		return Free{}, err
	}
	f := Free{
		MemoryBytes: meminfo("MemAvailable"), MemoryTotal: meminfo("MemTotal"),
		DiskBytes: disk.Bytes, DiskTotal: disk.Total, Inodes: disk.Inodes, InodesTotal: disk.InodesTotal, DiskDevice: disk.Device,
	}
	f.PIDs, f.PIDsTotal = processIDs(line)
	return f, nil
}

// processIDs returns how many processes and threads can be started, and how many
// there can be in all: by the kernel's limits, or by the limit of the container that
// the machine is. read is line.
func processIDs(read func(path string) string) (free, total int64) {
	number := func(path string) int64 {
		n, err := strconv.ParseInt(read(path), 10, 64)
		if err != nil {
			return math.MaxInt64 // also "max"
		}
		return n
	}
	if total = min(number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max")); total == math.MaxInt64 {
		return 0, 0
	}
	if fields := strings.Fields(read("/proc/loadavg")); len(fields) > 3 {
		_, tasks, _ := strings.Cut(fields[3], "/")
		used, _ := strconv.ParseInt(tasks, 10, 64)
		free = total - used
	}
	for _, group := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} { // the groups of a machine have no limit here
		if limit := number(group + "/pids.max"); limit < total {
			total, free = limit, min(free, limit-number(group+"/pids.current"))
		}
	}
	return free, total
}

// FileSystem implements Machine.
func (l *Local) FileSystem(path string) (FileSystem, error) {
	found, err := fileSystem(path)
	if err != nil {
		return FileSystem{}, fmt.Errorf("stat the file system of %s: %w", path, err)
	}
	return found, nil
}

// Fixed is a machine with fixed properties, for tests and for nodes in memory.
type Fixed struct {
	Resources v1.ResourceList
	System    v1.NodeSystemInfo
	Left      Free
	Mounts    map[string]FileSystem // by path
	IPs       *nodeaddress.List     // see Addressed
}

// Addresses implements Addressed.
func (f *Fixed) Addresses() *nodeaddress.List { return f.IPs }

// Capacity implements Machine.
func (f *Fixed) Capacity() (v1.ResourceList, error) { return f.Resources, nil }

// Info implements Machine.
func (f *Fixed) Info() v1.NodeSystemInfo { return f.System }

// Free implements Machine.
func (f *Fixed) Free() (Free, error) { return f.Left, nil }

// FileSystem implements Machine.
func (f *Fixed) FileSystem(path string) (FileSystem, error) {
	found, ok := f.Mounts[path]
	if !ok {
		return FileSystem{}, fmt.Errorf("stat the file system of %s: %w", path, fs.ErrNotExist)
	}
	return found, nil
}

// CheckIP returns an error for a text that cannot be the address of a node.
func CheckIP(text string) error {
	switch ip := net.ParseIP(text); {
	case ip == nil:
		return errors.New("not an IP address")
	case ip.IsUnspecified():
		return errors.New("nodeIP can't be an all zeros address")
	case ip.IsMulticast():
		return errors.New("nodeIP can't be a multicast address")
	case ip.IsLinkLocalUnicast():
		return errors.New("nodeIP can't be a link-local unicast address")
	}
	return nil
}

// DefaultIP returns the IPv4 address of the interface with the default route.
// Without such a route it returns the first address that is not loopback, or
// the loopback address.
func DefaultIP() (net.IP, error) {
	routes, err := netdump.Complete(func() ([]netlink.Route, error) {
		return netlink.RouteList(nil, netlink.FAMILY_V4)
	})
	if err == nil {
		for _, r := range routes {
			if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
				continue
			}
			if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
				addresses, err := netdump.Complete(func() ([]netlink.Addr, error) {
					return netlink.AddrList(link, netlink.FAMILY_V4)
				})
				if err == nil && len(addresses) > 0 {
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
