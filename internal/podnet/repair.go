package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/nft"
)

// Missing returns what of the network that Configure set up for podCIDRs was
// removed or changed by others, or "".
func (n *Network) Missing(podCIDRs []string) (string, error) {
	prefixes, err := parse(podCIDRs)
	if err != nil {
		return "", err
	}
	for _, path := range kernelSettings(prefixes) {
		if value, err := os.ReadFile(path); err != nil || string(value) != "1\n" {
			return path + " = 1", nil
		}
	}
	intact, err := n.tableIntact(prefixes)
	if err != nil {
		return "", err
	}
	if !intact {
		return "nftables table " + table(n.config.Name).Name, nil
	}
	bridge, err := netlink.LinkByName(clusternames.Bridge(n.config.Name))
	if err != nil && !isMissing(err) {
		return "", err
	}
	if hasIPv4(prefixes) && (err != nil || bridge.Attrs().Flags&net.FlagUp == 0) {
		return "bridge " + clusternames.Bridge(n.config.Name), nil
	}
	if setting := n.loopbackSetting(); hasIPv4(prefixes) {
		if value, err := os.ReadFile(setting); err != nil || string(value) != "1\n" { // the CNI plugin may have made the bridge again
			return setting + " = 1", nil
		}
	}
	want, err := n.conflist(prefixes)
	if err != nil {
		return "", err
	}
	if content, err := os.ReadFile(n.confFile()); err != nil || string(content) != string(want) {
		return n.confFile(), nil
	}
	return "", nil
}

// tableIntact reports whether the kernel has the table with its chains, and in
// each as many rules as masquerade writes.
func (n *Network) tableIntact(podCIDRs []netip.Prefix) (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, err
	}
	t := table(n.config.Name)
	chains, err := conn.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return false, fmt.Errorf("listing chains: %w", err)
	}
	found := 0
	wanted := []string{loopbackChain, neighbourChain, masqueradeChain, guardForward, guardInput}
	if n.config.Encrypt {
		wanted = append(wanted, sealIn, sealOut)
	}
	for _, c := range chains {
		if c.Table.Name == t.Name && slices.Contains(wanted, c.Name) {
			found++
		}
	}
	rules, err := nft.CountRules(0, t)
	masqueraded := len(podCIDRs) + len(n.config.Nodes)
	isolated := len(neighbours(n.config)) * (len(n.cluster(podCIDRs)) + len(n.config.ServiceCIDRs))
	guarded := rules[guardForward] == 2*len(podCIDRs) && rules[guardInput] == 2+len(n.cluster(podCIDRs))
	if n.config.Encrypt {
		guarded = guarded && rules[sealIn] == len(n.cluster(podCIDRs)) && rules[sealOut] == len(n.cluster(podCIDRs))
	}
	return found == len(wanted) && rules[loopbackChain] == 1 && rules[masqueradeChain] == masqueraded && rules[neighbourChain] == isolated && guarded, err
}

// attach puts the interfaces of running pods onto a bridge that was
// recreated, and gives it its address. Without that, pods whose bridge was removed
// have no network. It changes nothing about those that are on it.
func (n *Network) attach(bridge netlink.Link) error {
	results, err := n.results()
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range results {
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // the pod has ended since
		}
		if err == nil {
			err = reattachPod(bridge, content)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(failed...)
}

// reattachPod puts the interfaces of one pod, which the CNI library has recorded,
// onto the bridge, and gives the bridge the pod's gateway address.
func reattachPod(bridge netlink.Link, record []byte) error {
	var pod struct {
		Result struct {
			Interfaces []struct{ Name, Sandbox string }
			IPs        []struct{ Address, Gateway string }
		}
	}
	if err := json.Unmarshal(record, &pod); err != nil {
		return nil // the record was cut short: nothing is known of that pod
	}
	for _, ip := range pod.Result.IPs {
		prefix, err := netip.ParsePrefix(ip.Address)
		if err != nil {
			return err
		}
		gateway, err := netip.ParseAddr(ip.Gateway)
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr(netip.PrefixFrom(gateway, prefix.Bits()).String())
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(bridge, address); err != nil {
			return err
		}
	}
	for _, i := range pod.Result.Interfaces {
		if i.Sandbox != "" || i.Name == bridge.Attrs().Name {
			continue
		}
		port, err := netlink.LinkByName(i.Name)
		if isMissing(err) {
			continue // so is the pod
		}
		if err != nil {
			return err
		}
		err = errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetHairpin(port, true), netlink.LinkSetUp(port))
		if err != nil && linkExists(port) {
			return err
		}
	}
	return nil
}

// resultsDir is where the runtime's CNI library records what plugins have set
// up.
const resultsDir = "/var/lib/cni/results"

// results returns the records of this network's pods.
func (n *Network) results() ([]string, error) {
	entries, err := os.ReadDir(n.records)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	own := regexp.MustCompile("^" + regexp.QuoteMeta(n.config.Name) + "-[0-9a-f]{64}-eth0$")
	var paths []string
	for _, e := range entries {
		if own.MatchString(e.Name()) {
			paths = append(paths, filepath.Join(n.records, e.Name()))
		}
	}
	return paths, nil
}

// removeResults removes these records.
func (n *Network) removeResults() error {
	results, err := n.results()
	if err != nil {
		return err
	}
	for _, path := range results {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func isMissing(err error) bool {
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	return missing
}

func hasIPv4(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() })
}
