package host

import (
	"cmp"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/clusternames"
)

// MaxSlots is how many clusters fit on one machine.
const MaxSlots = 32

// Defaults holds the ports, ranges and names that a cluster in a slot has by
// default. Slot 0 has upstream's ports. The ports of each further slot are
// higher by 20. NodeCIDR and NodeCIDRIPv6 are for nodes whose pods have addresses of
// that family.
type Defaults struct {
	Ports                                                             cluster.Ports
	ServiceCIDR, ClusterCIDR, NodeCIDR, NodeCIDRIPv6, NFTable, Cgroup string
}

// DefaultsOf returns the defaults of a slot.
func DefaultsOf(name string, slot int) Defaults {
	move := 20 * slot
	return Defaults{
		Ports: cluster.Ports{
			Secure: 6443 + slot, Manager: 10257 + move, Scheduler: 10259 + move,
			Kubelet: clusterdefaults.KubeletPort + move, KubeletHealthz: 10248 + move,
			ProxyHealthz: 10256 + move, ProxyMetrics: 10249 + move, DNS: clusterdefaults.DNSPort + move, DNSMetrics: 9153 + move,
		},
		ServiceCIDR:  moved(clusterdefaults.ServiceCIDR, 1, slot),
		ClusterCIDR:  moved(clusterdefaults.ClusterCIDR, 1, -slot),
		NodeCIDR:     moved(clusterdefaults.NodeCIDR, 2, slot),
		NodeCIDRIPv6: moved(clusterdefaults.NodeCIDRIPv6, 7, slot),
		NFTable:      clusternames.ProxyTable(name),
		Cgroup:       clusternames.CgroupRoot(name),
	}
}

// moved returns a range with a number added to a byte of its address.
func moved(cidr string, index, by int) string {
	prefix := netip.MustParsePrefix(cidr)
	address := prefix.Addr().AsSlice()
	address[index] += byte(by)
	to, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(to, prefix.Bits()).String()
}

// FreeSlot returns the slot of the cluster with these settings if it has one, or
// else the lowest slot without a record whose ports are free. Only if there is
// none does it return the lowest slot with free ports whose clusters are all
// abandoned: the data of a cluster may come back, as with its disk. It returns
// MaxSlots if there is no slot.
func (s *Settings) FreeSlot(all []Record) int {
	return freeSlot(all, s.Options.Name, s.portsFree, Record.Abandoned)
}

func freeSlot(all []Record, name string, portsFree func(slot int) bool, abandoned func(Record) bool) int {
	holders := map[int][]Record{}
	for _, rec := range all {
		if rec.Name == name {
			return rec.Slot
		}
		holders[rec.Slot] = append(holders[rec.Slot], rec)
	}
	inUse := func(rec Record) bool { return !abandoned(rec) }
	for _, usable := range []func(slot int) bool{
		func(slot int) bool { return len(holders[slot]) == 0 },
		func(slot int) bool { return !slices.ContainsFunc(holders[slot], inUse) },
	} {
		for slot := range MaxSlots {
			if usable(slot) && portsFree(slot) {
				return slot
			}
		}
	}
	return MaxSlots
}

// portsFree reports whether the ports are free that a new cluster would have in a
// slot. Other programs have them, and clusters of other users, whose records this
// user does not see.
func (s *Settings) portsFree(slot int) bool {
	p := DefaultsOf(s.Options.Name, slot).Ports
	for _, port := range []int{p.Manager, p.Scheduler, p.Kubelet, p.KubeletHealthz, p.ProxyHealthz, p.ProxyMetrics, p.DNS, p.DNSMetrics} {
		if PortsFree("", map[string]int{"": port}) != nil {
			return false
		}
	}
	if s.Options.Ports.Secure != 0 { // given
		return true
	}
	err := PortsFree(s.Options.BindAddress, map[string]int{"--secure-port": p.Secure})
	foreign := (*AddressError)(nil)
	return err == nil || errors.As(err, &foreign) // an address that is not the machine's is reported later
}

// FormerHolders separates the abandoned clusters whose slot the cluster with
// these settings has now from all others. They have the same ports and address
// ranges, and what they have left on the machine has their names.
func (s *Settings) FormerHolders(all []Record) (former, others []Record) {
	for _, rec := range all {
		if rec.Slot == s.Slot && rec.Name != s.Options.Name && rec.Abandoned() {
			former = append(former, rec)
		} else {
			others = append(others, rec)
		}
	}
	return former, others
}

// Abandoned reports whether the data directory of a cluster is gone and no
// process of it runs, as after both were removed by other means than down.
// Mounts, interfaces and rules of it may be left.
func (rec Record) Abandoned() bool {
	if _, err := os.Lstat(rec.DataDir); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if rec.Running() || CheckNotRunning(rec.Name, rec.RunDirectory()) != nil {
		return false
	}
	lives, err := rec.hasProcesses()
	return err == nil && !lives
}

// hasProcesses reports whether a process of this machine names the cluster's
// data directory or its directory of sockets on its command line, as those of the
// cluster, containerd and the shims do, or is in the cluster's control groups, as
// those of containers are.
func (rec Record) hasProcesses() (bool, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false, err
	}
	root := cmp.Or(rec.Node.CgroupRoot, clusternames.CgroupRoot(rec.Name))
	for _, process := range processes {
		line, _ := os.ReadFile(process + "/cmdline") // empty if it has ended
		groups, _ := os.ReadFile(process + "/cgroup")
		if mentions(string(line), rec.DataDir) || mentions(string(line), rec.RunDirectory()) || mentions(string(groups), root) {
			return true, nil
		}
	}
	return false, nil
}

// mentions reports whether a command line, or a list of control groups, has a path or
// one below it. The control groups of further nodes have a suffix with a dot.
func mentions(text, path string) bool {
	for {
		_, after, found := strings.Cut(text, path)
		if !found {
			return false
		}
		if after == "" || strings.ContainsAny(after[:1], "/.\x00\n") {
			return true
		}
		text = after
	}
}
