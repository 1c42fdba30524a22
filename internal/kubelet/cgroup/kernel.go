package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kernel manages the control groups of the machine, in version 1 or 2.
type Kernel struct {
	root    string
	unified bool
	blocks  string // links from the numbers of block devices to their folders
	proc    string // where the folders of processes are
}

// controllers are the hierarchies of version 1 that pods get a group in.
func controllers() []string {
	return []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "blkio", "devices", "freezer", "hugetlb", "systemd", "net_cls", "net_prio", "perf_event"}
}

// Detect returns a Kernel for the version that is mounted at /sys/fs/cgroup.
func Detect() (*Kernel, error) {
	const root = "/sys/fs/cgroup"
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return nil, fmt.Errorf("control groups are not mounted on %s: %w", root, err)
	}
	return &Kernel{root: root, unified: st.Type == unix.CGROUP2_SUPER_MAGIC, blocks: "/sys/dev/block", proc: "/proc"}, nil
}

func write(path, value string) error {
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("write %s to %s: %w", value, path, err)
	}
	return nil
}

// Apply implements Groups.
func (k *Kernel) Apply(path string, r *runtimeapi.LinuxContainerResources, pids int64) error {
	return k.set(path, r, pids, true)
}

// Limit implements Groups.
func (k *Kernel) Limit(path string, r *runtimeapi.LinuxContainerResources, pids int64) error {
	return k.set(path, r, pids, false)
}

// set creates the group if it is missing and sets its controls. Limits that r does not
// have are lifted if lift is true.
func (k *Kernel) set(path string, r *runtimeapi.LinuxContainerResources, pids int64, lift bool) error {
	if k.unified {
		return k.set2(path, r, pids, lift)
	}
	return k.set1(path, r, pids, lift)
}

func (k *Kernel) set1(path string, r *runtimeapi.LinuxContainerResources, pids int64, lift bool) error {
	for _, controller := range controllers() {
		hierarchy := filepath.Join(k.root, controller)
		if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(hierarchy, path)
		if controller == "cpuset" {
			if err := inheritCPUs(hierarchy, path); err != nil {
				return err
			}
		} else if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		switch controller {
		case "cpu":
			if s := r.GetCpuShares(); s > 0 {
				if err := write(filepath.Join(dir, "cpu.shares"), strconv.FormatInt(s, 10)); err != nil {
					return err
				}
			}
			if err := limitCPUTime(dir, r, lift); err != nil {
				return err
			}
		case "memory":
			limit := r.GetMemoryLimitInBytes()
			if limit == 0 && !lift {
				continue
			}
			if limit == 0 {
				limit = -1
			}
			if err := write(filepath.Join(dir, "memory.limit_in_bytes"), strconv.FormatInt(limit, 10)); err != nil && limit > 0 {
				return err
			}
		case "pids":
			if err := limitPIDs(dir, pids); err != nil {
				return err
			}
		case "hugetlb":
			if err := limitHugePages(dir, ".limit_in_bytes", r.GetHugepageLimits()); err != nil {
				return err
			}
		}
	}
	return nil
}

// limitCPUTime limits the CPU time of a group of version 1 as Kernel.set says. A group
// cannot have less than those below it, not even with the new period and its former
// quota: then the quota is set first.
func limitCPUTime(dir string, r *runtimeapi.LinuxContainerResources, lift bool) error {
	period, quota := filepath.Join(dir, "cpu.cfs_period_us"), filepath.Join(dir, "cpu.cfs_quota_us")
	if r.GetCpuQuota() == 0 {
		if lift {
			_ = write(quota, "-1")
		}
		return nil
	}
	refused := write(period, strconv.FormatInt(r.GetCpuPeriod(), 10))
	if refused != nil && !errors.Is(refused, unix.EINVAL) {
		return refused
	}
	if err := write(quota, strconv.FormatInt(r.GetCpuQuota(), 10)); err != nil || refused == nil {
		return err
	}
	return write(period, strconv.FormatInt(r.GetCpuPeriod(), 10))
}

// inheritCPUs creates a cpuset group with the CPUs and memory nodes of its
// parent. A group with empty sets refuses every process.
func inheritCPUs(hierarchy, path string) error {
	at := hierarchy
	for _, element := range strings.Split(strings.Trim(path, "/"), "/") {
		parent := at
		at = filepath.Join(at, element)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			own, err := os.ReadFile(filepath.Join(at, name))
			if err != nil || strings.TrimSpace(string(own)) != "" {
				continue
			}
			inherited, err := os.ReadFile(filepath.Join(parent, name))
			if err != nil {
				return err
			}
			if err := write(filepath.Join(at, name), strings.TrimSpace(string(inherited))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Kernel) set2(path string, r *runtimeapi.LinuxContainerResources, pids int64, lift bool) error {
	at := k.root
	for _, element := range strings.Split(strings.Trim(path, "/"), "/") {
		if err := delegate(at); err != nil {
			return err
		}
		at = filepath.Join(at, element)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if s := r.GetCpuShares(); s > 0 {
		if err := write(filepath.Join(at, "cpu.weight"), strconv.FormatInt(cpuWeight(s), 10)); err != nil {
			return err
		}
	}
	if q := r.GetCpuQuota(); q > 0 || lift {
		quota := "max"
		if q > 0 {
			quota = strconv.FormatInt(q, 10) + " " + strconv.FormatInt(r.GetCpuPeriod(), 10)
		}
		if err := write(filepath.Join(at, "cpu.max"), quota); err != nil {
			return err
		}
	}
	if m := r.GetMemoryLimitInBytes(); m > 0 || lift {
		limit := "max"
		if m > 0 {
			limit = strconv.FormatInt(m, 10)
		}
		if err := write(filepath.Join(at, "memory.max"), limit); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetUnified())) {
		if err := write(filepath.Join(at, name), r.GetUnified()[name]); err != nil {
			return err
		}
	}
	if err := limitHugePages(at, ".max", r.GetHugepageLimits()); err != nil {
		return err
	}
	return limitPIDs(at, pids)
}

// limitHugePages limits the huge pages of a group as Groups.Apply says. For each size
// that the machine has, the group has a file with the suffix for pages in use, and
// another one for reserved pages in newer kernels:
//
//	hugetlb.2MB.max  hugetlb.2MB.rsvd.max
func limitHugePages(dir, suffix string, limits []*runtimeapi.HugepageLimit) error {
	if limits == nil {
		return nil
	}
	bytes := make(map[string]uint64, len(limits))
	for _, l := range limits {
		bytes[l.GetPageSize()] = l.GetLimit()
	}
	const prefix = "hugetlb."
	files, err := filepath.Glob(filepath.Join(dir, prefix+"*"+suffix))
	if err != nil {
		return err
	}
	for _, file := range files {
		size, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), prefix), ".")
		if err := write(file, strconv.FormatUint(bytes[size], 10)); err != nil {
			return err
		}
	}
	return nil
}

// limitPIDs limits the processes and threads of a group as Groups.Apply says.
func limitPIDs(dir string, pids int64) error {
	if pids == 0 {
		return nil
	}
	limit := "max"
	if pids > 0 {
		limit = strconv.FormatInt(pids, 10)
	}
	return write(filepath.Join(dir, "pids.max"), limit)
}

// needed are the controllers of version 2 that pods require. Pods get the wanted
// controllers if the kernel has them.
func needed() []string { return []string{"cpu", "memory", "pids"} }
func wanted() []string { return []string{"cpuset", "io", "hugetlb"} }

// delegate enables the controllers for the groups below dir.
func delegate(dir string) error {
	given := fields(filepath.Join(dir, "cgroup.subtree_control"))
	there := fields(filepath.Join(dir, "cgroup.controllers"))
	for _, controller := range needed() {
		if slices.Contains(given, controller) {
			continue
		}
		if !slices.Contains(there, controller) {
			return fmt.Errorf("control group %s does not have the controller %s: it is off in the kernel, or not delegated to the container that this runs in", dir, controller)
		}
		if err := write(filepath.Join(dir, "cgroup.subtree_control"), "+"+controller); err != nil {
			return fmt.Errorf("%w (a group that has processes of its own cannot give controllers to those below it)", err)
		}
	}
	for _, controller := range wanted() {
		if slices.Contains(there, controller) && !slices.Contains(given, controller) {
			_ = write(filepath.Join(dir, "cgroup.subtree_control"), "+"+controller)
		}
	}
	return nil
}

func fields(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw))
}

// cpuWeight maps the shares of version 1 (2 to 262144) to the weights of version
// 2 (1 to 10000), as KEP-2254 has it.
func cpuWeight(shares int64) int64 { return 1 + ((shares-2)*9999)/262142 }

const removeAttempts = 20

// hierarchies returns the directories in which a pod can have a group.
func (k *Kernel) hierarchies() []string {
	if k.unified {
		return []string{k.root}
	}
	var roots []string
	for _, c := range append(controllers(), "unified") {
		roots = append(roots, filepath.Join(k.root, c))
	}
	return roots
}

// Below implements Groups.
func (k *Kernel) Below(path string) ([]string, error) {
	var names []string
	for _, root := range k.hierarchies() {
		entries, err := os.ReadDir(filepath.Join(root, path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Remove implements Groups.
func (k *Kernel) Remove(path string) error {
	var failed error
	for _, root := range k.hierarchies() {
		if err := removeTree(filepath.Join(root, path)); err != nil {
			failed = err
		}
	}
	return failed
}

// Kill implements Groups.
func (k *Kernel) Kill(path string) error {
	if k.unified {
		if ok, err := killAtOnce(filepath.Join(k.root, path)); ok {
			return err
		}
	}
	var errs []error
	for _, root := range k.hierarchies() {
		errs = append(errs, killTree(filepath.Join(root, path)))
	}
	return errors.Join(errs...)
}

// killAtOnce has the kernel kill the processes in a group of version 2 and in its
// children, also those that fork meanwhile. ok is false if it cannot: kernels can since
// 5.14.
func killAtOnce(dir string) (ok bool, err error) {
	file := filepath.Join(dir, "cgroup.kill")
	if _, err := os.Stat(file); err != nil {
		return false, nil
	}
	if err := write(file, "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	return true, nil
}

// killTree kills the processes in a group and in its children.
func killTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it is gone
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, killTree(filepath.Join(dir, e.Name())))
		}
	}
	for _, field := range fields(filepath.Join(dir, "cgroup.procs")) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 1 || pid == os.Getpid() { // 0 is a process of another PID namespace
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("kill process %d in control group %s: %w", pid, dir, err))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a group and its children. It waits shortly for the kernel
// to reap processes that have just ended.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for attempt := 1; ; attempt++ {
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if attempt == removeAttempts {
			return fmt.Errorf("remove control group %s: %w", dir, err)
		}
		time.Sleep(time.Duration(attempt) * time.Millisecond)
	}
}

// Usage implements Groups.
func (k *Kernel) Usage(path string) (Usage, error) {
	if k.unified {
		dir := filepath.Join(k.root, path)
		memory, cpu := table(filepath.Join(dir, "memory.stat")), table(filepath.Join(dir, "cpu.stat"))
		u := Usage{
			CPUNanoseconds: cpu["usage_usec"] * 1000, MemoryBytes: number(filepath.Join(dir, "memory.current")),
			RSSBytes: memory["anon"], PageFaults: memory["pgfault"], MajorPageFaults: memory["pgmajfault"],
			Processes:       number(filepath.Join(dir, "pids.current")),
			UserNanoseconds: cpu["user_usec"] * 1000, SystemNanoseconds: cpu["system_usec"] * 1000,
			CacheBytes: memory["file"], MappedBytes: memory["file_mapped"], SwapBytes: number(filepath.Join(dir, "memory.swap.current")),
			PeakBytes: number(filepath.Join(dir, "memory.peak")), MemoryFailures: table(filepath.Join(dir, "memory.events"))["max"],
			Periods: cpu["nr_periods"], ThrottledPeriods: cpu["nr_throttled"], ThrottledNanoseconds: cpu["throttled_usec"] * 1000,
		}
		if path == "/" { // the root has no files of its own for these
			all := meminfo()
			u.MemoryBytes = less(all["MemTotal"], all["MemFree"])
		}
		u.WorkingSetBytes = less(u.MemoryBytes, memory["inactive_file"])
		u.Pressures = pressures(dir, path == "/")
		return u, nil
	}
	memory := table(filepath.Join(k.root, "memory", path, "memory.stat"))
	u := Usage{
		CPUNanoseconds: number(filepath.Join(k.root, "cpuacct", path, "cpuacct.usage")),
		MemoryBytes:    number(filepath.Join(k.root, "memory", path, "memory.usage_in_bytes")),
		RSSBytes:       memory["total_rss"], PageFaults: memory["total_pgfault"], MajorPageFaults: memory["total_pgmajfault"],
		Processes: number(filepath.Join(k.root, "pids", path, "pids.current")),
	}
	ticks, quota := table(filepath.Join(k.root, "cpuacct", path, "cpuacct.stat")), table(filepath.Join(k.root, "cpu", path, "cpu.stat"))
	u.UserNanoseconds, u.SystemNanoseconds = ticks["user"]*nanosecondsPerTick, ticks["system"]*nanosecondsPerTick
	u.CacheBytes, u.MappedBytes, u.SwapBytes = memory["total_cache"], memory["total_mapped_file"], memory["total_swap"]
	u.PeakBytes = number(filepath.Join(k.root, "memory", path, "memory.max_usage_in_bytes"))
	u.MemoryFailures = number(filepath.Join(k.root, "memory", path, "memory.failcnt"))
	u.Periods, u.ThrottledPeriods, u.ThrottledNanoseconds = quota["nr_periods"], quota["nr_throttled"], quota["throttled_time"]
	u.WorkingSetBytes = less(u.MemoryBytes, memory["total_inactive_file"])
	return u, nil
}

// nanosecondsPerTick is the unit of version 1's CPU times: the kernel's USER_HZ
// is 100 on every architecture that containers run on.
const nanosecondsPerTick = 1e7

// meminfo is the machine's memory in bytes, by the names of /proc/meminfo.
func meminfo() map[string]uint64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil
	}
	out := make(map[string]uint64)
	for line := range strings.Lines(string(raw)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			n, _ := strconv.ParseUint(fields[0], 10, 64)
			out[name] = n * 1024
		}
	}
	return out
}

func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func number(path string) uint64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return n
}

func table(path string) map[string]uint64 {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	out := make(map[string]uint64)
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		out[name] = n
	}
	return out
}
