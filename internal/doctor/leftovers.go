package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/proxy/iptables"
	"github.com/coracle-io/coracle/internal/proxy/ipvs"
)

const cgroupMount = "/sys/fs/cgroup"

// groups returns the control groups of a cluster, in version 2 and version 1.
func groups(cluster string) []string {
	root := clusternames.CgroupRoot(cluster)
	return []string{cgroupMount + root, cgroupMount + "/memory" + root}
}

// readLeftovers returns what unknown clusters have left of which no process
// runs. A cluster runs without a record if that was lost, or if a Go program
// started it.
func readLeftovers(known []string) []Leftover {
	var all []Leftover
	for _, prefix := range groups("") {
		all = append(all, leftPaths(prefix, "find %s -depth -type d -exec rmdir {} +, once its processes have ended")...)
	}
	all = append(all, leftPaths(clusternames.RunDir(""), "rm -r --one-file-system %s, once nothing is mounted below")...)
	all = append(all, leftTables(known)...)
	all = append(all, leftRules(iptables.New(iptables.Config{}).Owners(), known)...)
	all = append(all, leftServers(ipvs.New(ipvs.Config{}).Owners(), known)...)
	return slices.DeleteFunc(all, func(l Leftover) bool {
		return slices.Contains(known, l.Cluster) || lives(clusternames.RunDir(l.Cluster), groups(l.Cluster)...)
	})
}

// leftPaths returns the directories whose paths are a prefix and the name of a
// cluster. remove says how to remove one.
func leftPaths(prefix, remove string) []Leftover {
	paths, err := filepath.Glob(prefix + "*")
	if err != nil {
		return nil
	}
	var all []Leftover
	for _, path := range paths {
		all = append(all, Leftover{clusternames.ClusterOf(strings.TrimPrefix(path, prefix)), path, fmt.Sprintf(remove, path)})
	}
	return all
}

// leftTables returns the nftables tables of clusters.
func leftTables(known []string) []Leftover {
	conn, err := nftables.New()
	if err != nil {
		return nil
	}
	tables, err := netdump.Complete(conn.ListTables)
	if err != nil {
		return nil
	}
	var all []Leftover
	for _, t := range tables {
		if cluster, ok := clusternames.ClusterOfTable(t.Name, known); ok {
			table := cmp.Or(familyName(t.Family), "bridge") + " " + t.Name // clusters have no others
			all = append(all, Leftover{cluster, "the nftables table " + table, "nft delete table " + table})
		}
	}
	return all
}

// leftRules returns the rules of iptables of clusters, given whose there are.
func leftRules(owners, known []string) []Leftover {
	return leftByProxies("rules of iptables", owners, known)
}

// leftServers returns the virtual servers of clusters, given whose there are.
func leftServers(owners, known []string) []Leftover {
	return leftByProxies("virtual servers of IPVS and the interface "+clusternames.VirtualLink, owners, known)
}

// leftByProxies returns what proxies of clusters have left, given which ones have.
func leftByProxies(what string, owners, known []string) (all []Leftover) {
	for _, owner := range owners {
		if cluster, ok := clusternames.ClusterOfTable(owner, known); ok {
			all = append(all, Leftover{cluster, what + " of the proxy " + owner, "coracle proxy --cleanup --nftables-table=" + owner})
		}
	}
	return all
}

// lives reports whether something of a cluster runs: its supervisor, a process
// with a socket in its run directory, or one in its control groups. If it
// cannot find that out, it returns true.
func lives(runDir string, groups ...string) bool {
	if _, owned, err := processes.OwnerOf(runDir); owned || err != nil {
		return true
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	return err != nil || bytes.Contains(sockets, []byte(" "+runDir+"/")) || slices.ContainsFunc(groups, hasProcesses)
}

// hasProcesses reports whether a process is in a control group or below it.
func hasProcesses(group string) bool {
	found := false
	_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil // a group that no longer exists has no processes
		}
		if raw, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(raw)) != "" {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}
