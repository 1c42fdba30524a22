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
)

// Missing names what others have removed or changed of the network that
// Configure set up for these pod CIDRs; "" is nothing.
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
	intact, err := n.tableIntact()
	if err != nil {
		return "", err
	}
	if !intact {
		return "nftables table " + table(n.config.Name).Name, nil
	}
	bridge, err := netlink.LinkByName(Bridge(n.config.Name))
	if err != nil && !isMissing(err) {
		return "", err
	}
	if hasIPv4(prefixes) && (err != nil || bridge.Attrs().Flags&net.FlagUp == 0) {
		return "bridge " + Bridge(n.config.Name), nil
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

// tableIntact tells whether the kernel has the table with its chains.
func (n *Network) tableIntact() (bool, error) {
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
	for _, c := range chains {
		if c.Table.Name == t.Name && slices.Contains([]string{loopbackChain, neighbourChain, masqueradeChain}, c.Name) {
			found++
		}
	}
	return found == 3, nil
}

// attach puts the interfaces of running pods back onto a bridge that was made
// anew, with its address: pods whose bridge was removed reach nobody.
func (n *Network) attach(bridge netlink.Link) error {
	results, err := n.results()
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range results {
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // the pod has ended meanwhile
		}
		if err == nil {
			err = reattach(bridge, content)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(failed...)
}

// reattach does so for one pod, whose interfaces the CNI plugins noted.
func reattach(bridge netlink.Link, noted []byte) error {
	var pod struct {
		Result struct {
			Interfaces []struct{ Name, Sandbox string }
			IPs        []struct{ Address, Gateway string }
		}
	}
	if err := json.Unmarshal(noted, &pod); err != nil {
		return nil // a note that was cut short: of that pod nothing is known
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

// resultsDir is where the runtime's CNI library notes what plugins have set up.
const resultsDir = "/var/lib/cni/results"

// results are the files there that are of this network's pods.
func (n *Network) results() ([]string, error) {
	entries, err := os.ReadDir(resultsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	own := regexp.MustCompile("^" + regexp.QuoteMeta(n.config.Name) + "-[0-9a-f]{64}-eth0$")
	var paths []string
	for _, e := range entries {
		if own.MatchString(e.Name()) {
			paths = append(paths, filepath.Join(resultsDir, e.Name()))
		}
	}
	return paths, nil
}

func isMissing(err error) bool {
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	return missing
}

func hasIPv4(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() })
}
