// Package podnet gives the pods of one node their network: the CNI
// configuration of a bridge with the node's part of the cluster CIDR, the
// kernel settings that routing between pods and Services needs, and the
// masquerading of what pods send out of the cluster.
//
//	pod eth0 ──veth── cor-NAME (bridge, first address of the pod CIDR) ── host
//	                                                       └─ masquerade ── world
//
// Every cluster on a machine has a bridge, leases and an nftables table of its
// own.
package podnet

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Config says whose network this is.
type Config struct {
	// Name is the cluster's.
	Name string
	// CNIConfDir is the folder that the runtime reads; the package has one
	// file there. LeaseDir, where the host-local plugin notes which address is
	// whose, is the package's own.
	CNIConfDir string
	LeaseDir   string
	// ClusterCIDRs are the ranges of all pods of the cluster; traffic between
	// them keeps its source address. Empty takes the node's own pod CIDRs.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges of the cluster's Services.
	ServiceCIDRs []netip.Prefix
	// MTU of the pods' interfaces; 0 is the kernel's default.
	MTU int
}

// Network is the pod network of one node.
type Network struct{ config Config }

// New returns the network; it touches nothing.
func New(config Config) *Network { return &Network{config: config} }

// Bridge is the name of a cluster's bridge: cor-NAME, or a digest of the name
// when that is longer than the kernel's 15 bytes.
func Bridge(name string) string {
	if bridge := bridgePrefix + name; len(bridge) <= 15 {
		return bridge
	}
	return fmt.Sprintf(bridgePrefix+"%x", sha256.Sum256([]byte(name)))[:15]
}

// IsBridge says that an interface of this name is a cluster's bridge.
func IsBridge(name string) bool { return strings.HasPrefix(name, bridgePrefix) }

// Configure sets the node's network up for its pod CIDRs (at most one of each
// family), to be called when they are known and again when they change. It is
// idempotent. The CNI configuration is written last: once the runtime sees
// it, pods may start.
func (n *Network) Configure(podCIDRs []string) error {
	prefixes, err := parse(podCIDRs)
	if err != nil {
		return err
	}
	if err := setKernel(prefixes); err != nil {
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

// cluster is the ranges of all pods of the cluster, as far as they are known.
func (n *Network) cluster(podCIDRs []netip.Prefix) []netip.Prefix {
	if len(n.config.ClusterCIDRs) == 0 {
		return podCIDRs
	}
	return n.config.ClusterCIDRs
}

func (n *Network) confFile() string { return filepath.Join(n.config.CNIConfDir, "10-coracle.conflist") }

// conflist is the CNI network configuration list (CNI specification 1.0).
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
		"bridge":       Bridge(n.config.Name),
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
	if n.config.MTU > 0 {
		bridge["mtu"] = n.config.MTU
	}
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       n.config.Name,
		"plugins":    []any{bridge},
	}, "", "  ")
}

// kernelSettings are the files of the settings that must be 1.
func kernelSettings(podCIDRs []netip.Prefix) []string {
	settings := []string{"/proc/sys/net/bridge/bridge-nf-call-iptables"}
	for _, p := range podCIDRs {
		if p.Addr().Is4() {
			settings = append(settings, "/proc/sys/net/ipv4/ip_forward")
		} else {
			settings = append(settings, "/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/bridge/bridge-nf-call-ip6tables")
		}
	}
	return settings
}

// setKernel switches on forwarding, and netfilter for bridged packets: a pod
// that answers a pod of the same bridge sends past the routing code, where
// the Service address would not be put back into the answer.
func setKernel(podCIDRs []netip.Prefix) error {
	for _, path := range kernelSettings(podCIDRs) {
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

// writeFile replaces a file in one step, and leaves an equal one alone so that
// the runtime does not reload it.
func writeFile(path string, content []byte) error {
	if before, err := os.ReadFile(path); err == nil && string(before) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: content, Mode: 0o644})
}
