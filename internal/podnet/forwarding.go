package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// The kernel's settings of IPv6, and whether it forwards at all.
const (
	settings6   = "/proc/sys/net/ipv6/conf"
	forwarding6 = settings6 + "/all/forwarding"
)

// bootFile has the id that the kernel gave to this boot.
const bootFile = "/proc/sys/kernel/random/boot_id"

// forwardingNote is what forwardIPv6 has changed.
type forwardingNote struct {
	Boot       string   `json:"boot"`                 // the id of the boot that has the settings
	Interfaces []string `json:"interfaces,omitempty"` // whose accept_ra was 1 and is 2, sorted
	Forwarded  []string `json:"forwarded,omitempty"`  // interfaces that forwarded before, sorted; "default" are new ones
}

// forwardIPv6 makes the kernel forward IPv6, if it does not. A machine that forwards
// ignores router advertisements (RFC 4861) on interfaces whose accept_ra is 1, and
// loses the default routes that it has from them. So accept_ra is 2 there before: they
// are accepted also while forwarding. The file note then says what was changed, for
// restoreIPv6. "" leaves interfaces alone.
func forwardIPv6(note string) error {
	on, err := readSetting(forwarding6)
	if err != nil || on == "1" {
		return err
	}
	if note != "" {
		if err := keepRouters(note); err != nil {
			return fmt.Errorf("accepting router advertisements while forwarding: %w", err)
		}
	}
	return os.WriteFile(forwarding6, []byte("1"), 0o644)
}

// keepRouters makes the machine accept router advertisements also while it forwards, where
// it accepts them now. It notes that first.
func keepRouters(note string) error {
	boot, err := readSetting(bootFile)
	if err != nil {
		return err
	}
	n, err := readNote(note)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if n.Boot != boot { // otherwise somebody has turned forwarding off since
		n = forwardingNote{Boot: boot}
	}
	if err := n.look(); err != nil {
		return err
	}
	content, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := writeFile(note, content); err != nil {
		return err
	}
	for _, name := range n.Interfaces {
		if err := changeSetting(acceptRA(name), "1", "2"); err != nil {
			return err
		}
	}
	return nil
}

// look adds the interfaces that forward now, and those on which router advertisements are
// accepted now, and would not be while forwarding. Those of clusters and ports of bridges
// are not among them: pods must not be taken for routers.
func (n *forwardingNote) look() error {
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	bridges := map[int]bool{}
	for _, link := range links {
		bridges[link.Attrs().Index] = link.Type() == "bridge"
	}
	if value, err := readSetting(forwards("default")); err == nil && value == "1" {
		n.Forwarded = append(n.Forwarded, "default")
	}
	for _, link := range links {
		is := link.Attrs()
		if is.Flags&net.FlagLoopback != 0 || clusternames.IsClusters(is.Name) || bridges[is.MasterIndex] {
			continue
		}
		accepted, err := readSetting(acceptRA(is.Name))
		forwarded, err2 := readSetting(forwards(is.Name))
		switch err := errors.Join(err, err2); {
		case errors.Is(err, fs.ErrNotExist): // it was just removed, or has no IPv6
		case err != nil:
			return err
		case forwarded != "0":
			n.Forwarded = append(n.Forwarded, is.Name)
		case accepted == "1":
			n.Interfaces = append(n.Interfaces, is.Name)
		}
	}
	for _, list := range []*[]string{&n.Interfaces, &n.Forwarded} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return nil
}

// restoreIPv6 undoes what forwardIPv6 has noted, unless somebody else needs it or has
// changed it since, and removes the note. needed reports whether another cluster or
// program of this machine forwards IPv6; noted are the interfaces that are not its.
func restoreIPv6(note string, needed func(noted []string) (bool, error)) error {
	if err := sharedfile.RemoveUnfinished(note); err != nil {
		return err
	}
	n, err := readNote(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	boot, err := readSetting(bootFile)
	if err != nil {
		return err
	}
	if n.Boot == boot { // otherwise the settings were gone with the machine's stop
		keep, err := needed(n.Interfaces)
		if err == nil && !keep {
			err = n.undo()
		}
		if err != nil {
			return err
		}
	}
	return os.Remove(note)
}

// undo restores the settings. Forwarding ends first, on all interfaces, so that no
// default route is lost.
func (n *forwardingNote) undo() error {
	if err := changeSetting(forwarding6, "1", "0"); err != nil {
		return err
	}
	for _, name := range n.Forwarded {
		if err := changeSetting(forwards(name), "0", "1"); err != nil {
			return err
		}
	}
	for _, name := range n.Interfaces {
		if err := changeSetting(acceptRA(name), "2", "1"); err != nil {
			return err
		}
	}
	return nil
}

// othersForward reports whether there are signs that another cluster or program of this
// machine needs forwarding of IPv6: tables of a cluster, or a virtual interface with an
// address for any destination, such as a bridge of containers. noted are interfaces that
// were there before.
func (n *Network) othersForward(noted []string) (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return false, fmt.Errorf("listing nftables tables: %w", err)
	}
	for _, t := range tables {
		if cluster, ok := clusternames.ClusterOfTable(t.Name, []string{n.config.Name}); ok && cluster != n.config.Name {
			return true, nil
		}
	}
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return false, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range links {
		name := link.Attrs().Name
		if link.Type() == "device" || clusternames.IsClusters(name) || slices.Contains(noted, name) {
			continue // hardware, and loopback
		}
		addresses, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
		if err != nil && linkExists(link) {
			return false, fmt.Errorf("listing the addresses of %s: %w", name, err)
		}
		if slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
			address, _ := netip.AddrFromSlice(a.IP)
			return address.IsGlobalUnicast()
		}) {
			return true, nil
		}
	}
	return false, nil
}

func acceptRA(name string) string { return filepath.Join(settings6, name, "accept_ra") }

func forwards(name string) string { return filepath.Join(settings6, name, "forwarding") }

// readSetting returns the value of a setting of the kernel.
func readSetting(path string) (string, error) {
	raw, err := os.ReadFile(path)
	return strings.TrimSpace(string(raw)), err
}

// changeSetting changes a setting from one value to another. It does nothing if it has
// another value, or is not there.
func changeSetting(path, from, to string) error {
	is, err := readSetting(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && is != from {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(to), 0o644)
}

// readNote returns a note. One that is damaged says nothing.
func readNote(path string) (n forwardingNote, err error) {
	raw, err := os.ReadFile(path)
	if err == nil && json.Unmarshal(raw, &n) != nil {
		n = forwardingNote{}
	}
	return n, err
}
