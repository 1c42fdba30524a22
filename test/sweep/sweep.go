package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/proxy/iptables"
	"github.com/coracle-io/coracle/internal/proxy/ipvs"
	proxytables "github.com/coracle-io/coracle/internal/proxy/nftables"
	"github.com/coracle-io/coracle/internal/sharedfile"
	"github.com/coracle-io/coracle/test/mark"
)

// sweeper removes what makers that do not run any more have left.
type sweeper struct {
	makers   string        // their folder
	clusters host.Registry // of the clusters that tests start
	program  string        // takes clusters down
}

// sweep removes what all makers in the folder have left. What fails for one does
// not keep it from the others. Another sweep waits until it is done.
func (s sweeper) sweep(ctx context.Context) error {
	if _, err := os.Lstat(s.makers); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := sharedfile.Acquire(ctx, filepath.Join(s.makers, "lock"), sharedfile.Holder{PID: os.Getpid()}, timeout)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	makers, err := mark.Makers(s.makers)
	errs := []error{err}
	for _, m := range makers {
		if m.Running() {
			continue
		}
		fmt.Printf("removing what tests in process %d left: %s\n", m.PID, m.Mark)
		if err := s.remove(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Mark, err))
		}
	}
	return errors.Join(errs...)
}

// remove removes what a maker has left. Its processes end first, because they make
// more; its files are removed last, because they say what else there is. After an
// error the rest stays for the next sweep.
func (s sweeper) remove(ctx context.Context, m mark.Maker) error {
	for _, step := range []func(context.Context, mark.Maker) error{endProcesses, s.downClusters, removeFromKernel, removeFiles} {
		if err := step(ctx, m); err != nil {
			return err
		}
	}
	return m.End()
}

// processPoll is the interval at which endProcesses looks for processes again.
const processPoll = 10 * time.Millisecond

// endProcesses ends the processes whose environment has the mark, and returns when
// there are none.
func endProcesses(ctx context.Context, m mark.Maker) error {
	for {
		left, err := marked(m)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, p := range left {
			if err := host.StopHolder(ctx, p, 0); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end: %w", len(left), ctx.Err())
		case <-time.After(processPoll):
		}
	}
}

// marked returns the processes whose environment has the mark of a maker.
func marked(m mark.Maker) (all []sharedfile.Holder, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	entry := []byte(mark.Variable + "=" + m.Mark)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		start, err := host.StartTime(pid) // before the environment: together they are of one process
		if err != nil {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // none if it has ended
		if slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(other []byte) bool { return bytes.Equal(other, entry) }) {
			all = append(all, sharedfile.Holder{PID: pid, PIDStart: start})
		}
	}
	return all, nil
}

// downTimeout bounds the removal of one cluster.
const downTimeout = 2 * time.Minute

// downClusters takes the clusters down that have the mark.
func (s sweeper) downClusters(ctx context.Context, m mark.Maker) error {
	names, err := s.clusters.Present()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, m.Prefix()) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, downTimeout)
		cmd := exec.CommandContext(ctx, s.program, "down", "--yes", "--name="+name)
		cmd.Env = append(os.Environ(), "HOME="+m.Directory) // no file of this user
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			return fmt.Errorf("coracle down --yes --name=%s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// removeFromKernel removes control groups, network namespaces, interfaces, tables of
// nftables, rules of iptables and virtual servers. Only root has any.
func removeFromKernel(ctx context.Context, m mark.Maker) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return errors.Join(removeCgroups(ctx, m), removeNamespaces(m), removeLinks(m), removeTables(m), removeRules(m), removeServers(m))
}

// removeCgroups removes control groups with their processes.
func removeCgroups(ctx context.Context, m mark.Maker) error {
	groups := map[string]bool{}
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, err := filepath.Glob(filepath.Join(hierarchy, m.Prefix()+"*"))
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			groups["/"+filepath.Base(dir)] = true
		}
	}
	var errs []error
	for group := range groups {
		errs = append(errs, containerd.RemoveCgroups(ctx, group))
	}
	return errors.Join(errs...)
}

// removeNamespaces removes named network namespaces, with the interfaces in them
// and the other ends of these.
func removeNamespaces(m mark.Maker) error {
	named, err := filepath.Glob("/run/netns/" + m.Prefix() + "*")
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range named {
		errs = append(errs, unmountBelow(path), os.Remove(path))
	}
	return errors.Join(errs...)
}

func removeLinks(m mark.Maker) error {
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range links {
		if !strings.HasPrefix(link.Attrs().Name, m.Prefix()) {
			continue
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) { // it goes with its other end
			errs = append(errs, fmt.Errorf("remove interface %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

func removeTables(m mark.Maker) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list the tables of nftables: %w", err)
	}
	for _, table := range tables {
		if strings.HasPrefix(table.Name, m.Prefix()) {
			conn.DelTable(table)
		}
	}
	return conn.Flush()
}

// removeRules removes the rules of iptables of proxies.
func removeRules(m mark.Maker) error {
	var errs []error
	for _, owner := range iptables.New(iptables.Config{}).Owners() {
		if strings.HasPrefix(owner, m.Prefix()) {
			errs = append(errs, iptables.New(iptables.Config{Owner: owner}).RemoveOwn())
		}
	}
	return errors.Join(errs...)
}

// removeServers removes the virtual servers of IPVS of proxies.
func removeServers(m mark.Maker) error {
	for _, owner := range ipvs.New(ipvs.Config{}).Owners() {
		if strings.HasPrefix(owner, m.Prefix()) {
			return ipvs.New(ipvs.Config{NFTables: proxytables.Config{Table: owner}}).RemoveOwn()
		}
	}
	return nil
}

// removeFiles removes what is mounted in the maker's directory, and its files
// elsewhere.
func removeFiles(_ context.Context, m mark.Maker) error {
	if err := unmountBelow(m.Directory); err != nil {
		return err
	}
	if err := errors.Join(detachLoops(m), removeRecords(m)); err != nil {
		return err
	}
	for _, dir := range []string{"/run", "/run/coracle", "/run/cdi"} {
		paths, err := filepath.Glob(filepath.Join(dir, m.Prefix()+"*"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := unmountBelow(path); err != nil {
				return err
			}
			if err := tree.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmountBelow unmounts everything at or below a path, the deepest first.
func unmountBelow(path string) error {
	points, err := mountinfo.Points()
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(mountinfo.Below(points, path)) {
		if err := mountinfo.Detach(point); err != nil {
			return err
		}
	}
	return nil
}

// cniRecords is the directory in which the CNI library records pods that have a network.
const cniRecords = "/var/lib/cni/results"

// removeRecords removes the records of pods of the maker's container runtimes. The paths
// of the network namespaces in them begin with the mark.
func removeRecords(m mark.Maker) error {
	paths, err := filepath.Glob(filepath.Join(cniRecords, "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(content, []byte("/run/"+m.Prefix())) {
			continue // it was removed meanwhile, or is another's
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// detachLoops detaches loop devices from files in the maker's directory.
func detachLoops(m mark.Maker) error {
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, path := range attached {
		file, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(file), m.Directory+"/") {
			continue // it was detached meanwhile, or is another's
		}
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(path))))
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			return fmt.Errorf("losetup --detach %s: %w: %s", device, err, out)
		}
	}
	return nil
}
