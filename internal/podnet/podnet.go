// Package podnet sets up the pod network of a node: the CNI configuration of a
// bridge with the node's part of the cluster CIDR, the kernel settings for
// routing between pods and Services, and masquerading.
//
//	pod eth0 ──veth── cor-NAME (bridge, first address of the pod CIDR) ── host
//	                                                       └─ masquerade ── world
//
// Each cluster on a machine has its own bridge, leases and nftables tables. The pods
// of other nodes are reached by routes and, across routers, by a tunnel (Routes).
package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	"github.com/vishvananda/netlink"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Config configures a Network.
type Config struct {
	// Name is the name of the cluster, or of its node (clusternames.OfNode).
	Name string
	// CNIConfDir is the directory that the runtime reads; the package writes
	// one file there. LeaseDir holds the leases of the host-local plugin. It
	// belongs to the package.
	CNIConfDir string
	LeaseDir   string
	// Forwarding is the directory, shared by all clusters of the machine, of the file
	// that notes what forwarding of IPv6 has changed, for Remove. Without it, interfaces
	// stay as they are, and lose default routes of router advertisements: in the
	// namespace of a further node.
	Forwarding string
	// ClusterCIDRs are the ranges of all pods of the cluster. Traffic between
	// them keeps its source address. The default is the node's own pod CIDRs.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges of the cluster's Services.
	ServiceCIDRs []netip.Prefix
	// Address returns the address by which other machines reach this node, which may
	// change. The MTU of the interface with it, less the headers of the tunnel if there
	// may be one, is that of the interfaces of new pods. It is the kernel's default if the
	// address is invalid, or Address is nil.
	Address func() netip.Addr
	// Encrypt says that the pods of other machines are reached through WireGuard alone:
	// packets of pods that come or go by another interface are dropped.
	Encrypt bool
	// Nodes are the ranges of the addresses of further nodes, which reach the world
	// by this machine, at most one of each family, and NodesLink the machine's
	// interface to them. There is no range if there are no such nodes.
	Nodes     []netip.Prefix
	NodesLink string
}

// Network is the pod network of a node.
type Network struct {
	config   Config
	records  string                  // directory of the CNI library's records
	bootID   string                  // file with the id that the kernel gave to this boot
	hardware func(netlink.Link) bool // whether an interface is not made by software
	linkMTU  atomic.Int64            // of the interface that had the address last; 0 before
}

// New returns the network. It changes nothing.
func New(config Config) *Network {
	return &Network{config: config, records: resultsDir, bootID: bootFile, hardware: isHardware}
}

// Configure sets up the node's network for its pod CIDRs, at most one of each
// family. Call it when they are known and when they change. It is idempotent.
// It writes the CNI configuration last: the runtime starts pods once it sees
// that.
func (n *Network) Configure(podCIDRs []string) error {
	prefixes, err := parse(podCIDRs)
	if err != nil {
		return err
	}
	if err := n.Forward(prefixes); err != nil {
		return err
	}
	if err := n.masquerade(prefixes); err != nil {
		return fmt.Errorf("masquerading of the pods' traffic: %w", err)
	}
	if hasIPv4(prefixes) {
		if err := n.routeLoopback(); err != nil {
			return err
		}
	}
	content, err := n.conflist(prefixes)
	if err != nil {
		return err
	}
	return writeFile(n.confFile(), content)
}

func parse(podCIDRs []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, s := range podCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("pod CIDR %q: %w", s, err)
		}
		prefixes = append(prefixes, p.Masked())
	}
	if len(prefixes) == 0 {
		return nil, errors.New("the node has no pod CIDR")
	}
	return prefixes, nil
}

// cluster returns the known ranges of all pods of the cluster.
func (n *Network) cluster(podCIDRs []netip.Prefix) []netip.Prefix {
	if len(n.config.ClusterCIDRs) == 0 {
		return podCIDRs
	}
	return n.config.ClusterCIDRs
}

func (n *Network) confFile() string { return filepath.Join(n.config.CNIConfDir, "10-coracle.conflist") }

// conflist returns the CNI network configuration list (CNI specification 1.0).
func (n *Network) conflist(podCIDRs []netip.Prefix) ([]byte, error) {
	type ranges = [][]map[string]string
	var r ranges
	var routes []map[string]string
	for _, p := range podCIDRs {
		r = append(r, []map[string]string{{"subnet": p.String()}})
		everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if p.Addr().Is6() {
			everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		routes = append(routes, map[string]string{"dst": everywhere.String()})
	}
	bridge := map[string]any{
		"type":         "bridge",
		"bridge":       clusternames.Bridge(n.config.Name),
		"isGateway":    true,
		"forceAddress": true,
		"hairpinMode":  true,
		"ipam": map[string]any{
			"type":    "host-local",
			"ranges":  r,
			"routes":  routes,
			"dataDir": n.config.LeaseDir,
		},
	}
	mtu, err := n.mtu()
	if err != nil {
		return nil, fmt.Errorf("finding the MTU of the pods' interfaces: %w", err)
	}
	if mtu > 0 {
		bridge["mtu"] = mtu
	}
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       n.config.Name,
		"plugins":    []any{bridge},
	}, "", "  ")
}

// mtu returns the MTU of the pods' interfaces, 0 for the kernel's default.
func (n *Network) mtu() (int, error) {
	if n.config.Address == nil {
		return 0, nil
	}
	address := n.config.Address()
	if !address.IsValid() {
		return 0, nil
	}
	interfaces, err := Interfaces()
	if err != nil {
		return 0, err
	}
	mtu := mtuAt(address, interfaces)
	if mtu == 0 { // a machine that gets another address has none for a moment
		mtu = int(n.linkMTU.Load())
	}
	n.linkMTU.Store(int64(mtu))
	if n.config.Encrypt { // other machines that come have the tunnel
		return mtuInside(mtu, address, true), nil
	}
	switch _, err := netlink.LinkByName(clusternames.Tunnel(n.config.Name)); {
	case err == nil:
		mtu = mtuInside(mtu, address, false)
	case !isMissing(err):
		return 0, err
	}
	return mtu, nil
}

// kernelSettings returns the files of the kernel settings that must be 1.
func kernelSettings(podCIDRs []netip.Prefix) []string {
	settings := []string{"/proc/sys/net/bridge/bridge-nf-call-iptables"}
	if nft.KernelHasIPv6() {
		// Network policies filter the link-local addresses that all pods have.
		settings = append(settings, "/proc/sys/net/bridge/bridge-nf-call-ip6tables")
	}
	for _, p := range podCIDRs {
		if p.Addr().Is4() {
			settings = append(settings, "/proc/sys/net/ipv4/ip_forward")
		} else {
			settings = append(settings, forwarding6)
		}
	}
	return settings
}

// Forward sets the kernel up for traffic between pods with addresses of the ranges'
// families: it turns on forwarding, and netfilter for bridged packets. Without that, an
// answer from one pod of the bridge to another bypasses the translation of the Service
// address.
func (n *Network) Forward(ranges []netip.Prefix) error {
	note, err := n.note()
	if err != nil {
		return err
	}
	for _, path := range kernelSettings(ranges) {
		if path == forwarding6 {
			if err := forwardIPv6(note, n.claim); err != nil {
				return fmt.Errorf("setting %s to 1: %w", path, err)
			}
			continue
		}
		err := os.WriteFile(path, []byte("1"), 0o644)
		if errors.Is(err, fs.ErrNotExist) && filepath.Base(filepath.Dir(path)) == "bridge" {
			if output, err := exec.Command("modprobe", "br_netfilter").CombinedOutput(); err != nil {
				return fmt.Errorf("the kernel module br_netfilter is missing, which Services between pods of one node need: modprobe br_netfilter: %w: %s", err, output)
			}
			err = os.WriteFile(path, []byte("1"), 0o644)
		}
		if err != nil {
			return fmt.Errorf("setting %s to 1: %w", path, err)
		}
	}
	return nil
}

// writeFile replaces a file in one step. It does not touch a file with the same
// content, so that the runtime does not reload it.
func writeFile(path string, content []byte) error {
	if before, err := os.ReadFile(path); err == nil && string(before) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: content, Mode: 0o644})
}
