package podnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// The kernel's settings of IPv6, and whether it forwards at all.
const (
	settings6   = "/proc/sys/net/ipv6/conf"
	forwarding6 = settings6 + "/all/forwarding"
)

// threadNamespace is a link with the number of the network namespace of this thread.
const threadNamespace = "/proc/thread-self/ns/net"

// notePatience is how long a cluster waits for others that use the note.
const notePatience = 10 * time.Second

// bootFile has the id that the kernel gave to this boot.
const bootFile = "/proc/sys/kernel/random/boot_id"

// maxNote bounds a note, in bytes.
const maxNote = 1 << 20

// forwardingNote is what clusters have changed for forwarding of IPv6 in this network
// namespace. They share it, so that the last one of them restores the settings.
type forwardingNote struct {
	Boot       string         `json:"boot"`                 // which settings they are, as thisBoot says
	Interfaces map[string]int `json:"interfaces,omitempty"` // whose accept_ra was 1 and is 2, with their indexes: udev renames them
	Forwarded  []string       `json:"forwarded,omitempty"`  // interfaces that forwarded before, sorted; "default" are new ones
	Newest     int            `json:"newest"`               // the highest index of the interfaces that were looked at
}

// interface6 is an interface with its settings of IPv6.
type interface6 struct {
	name     string
	index    int
	hardware bool
	acceptRA string
	forwards string
}

// note returns the file with the forwardingNote, "" for none.
func (n *Network) note() (string, error) {
	if n.config.Forwarding == "" {
		return "", nil
	}
	namespace, err := os.Readlink(threadNamespace)
	if err != nil {
		return "", fmt.Errorf("finding this network namespace: %w", err)
	}
	number := strings.TrimSuffix(strings.TrimPrefix(namespace, "net:["), "]")
	return filepath.Join(n.config.Forwarding, "coracle-ipv6-"+number+".json"), nil
}

// thisBoot returns what tells the settings of this network namespace from those of others
// that had or will have its number: the id of the boot, and the cookie of the namespace.
func thisBoot() (string, error) {
	boot, err := readSetting(bootFile)
	if err != nil {
		return "", err
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("opening a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	cookie, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return boot, nil // the kernel is older than Linux 5.14
	}
	return boot + "/" + strconv.FormatUint(cookie, 10), nil
}

// locked calls f while no other process reads or writes the note.
func locked(note string, f func() error) error {
	path := note + ".lock"
	lock, err := sharedfile.Acquire(context.Background(), path, sharedfile.Holder{PID: os.Getpid()}, notePatience)
	if err != nil {
		return err
	}
	return errors.Join(f(), os.Remove(path), lock.Release())
}

// forwardIPv6 makes the kernel forward IPv6, if it does not. A machine that forwards
// ignores router advertisements (RFC 4861) on interfaces whose accept_ra is 1, and
// loses the default routes that it has from them. So accept_ra is 2 there before: they
// are accepted also while forwarding. The file note then says what was changed, for
// restoreIPv6. "" leaves interfaces alone.
//
// forwardIPv6 calls claim under the lock of the note, so that a cluster that is removed
// meanwhile either finds this one, or has ended forwarding before.
func forwardIPv6(note string, claim func() error) error {
	if note == "" {
		on, err := readSetting(forwarding6)
		if err != nil || on == "1" {
			return err
		}
		return os.WriteFile(forwarding6, []byte("1"), 0o644)
	}
	return locked(note, func() error {
		if err := claim(); err != nil {
			return err
		}
		if on, err := readSetting(forwarding6); err != nil || on == "1" {
			return err
		}
		if err := keepRouters(note); err != nil {
			return fmt.Errorf("accepting router advertisements while forwarding: %w", err)
		}
		return os.WriteFile(forwarding6, []byte("1"), 0o644)
	})
}

// claim makes the table of the cluster, which may have nothing else yet: others know by it
// that this one needs forwarding.
func (n *Network) claim() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.AddTable(table(n.config.Name))
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("making nftables table %s: %w", table(n.config.Name).Name, err)
	}
	return nil
}

// keepRouters makes the machine accept router advertisements also while it forwards, where
// it accepts them now. It notes that first.
func keepRouters(note string) error {
	boot, err := thisBoot()
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
	all, err := interfaces6(isHardware)
	if err != nil {
		return err
	}
	if value, err := readSetting(forwards("default")); err == nil && value == "1" {
		n.Forwarded = append(n.Forwarded, "default")
	}
	n.cover(all)
	return n.accept(note, n.Interfaces)
}

// cover adds the interfaces that forward now, and those on which router advertisements are
// accepted now, and would not be while forwarding.
func (n *forwardingNote) cover(all []interface6) {
	accepting := map[string]int{}
	for _, i := range all {
		n.Newest = max(n.Newest, i.index)
		switch {
		case i.forwards != "0":
			n.Forwarded = append(n.Forwarded, i.name)
		case i.acceptRA == "1":
			accepting[i.name] = i.index
		}
	}
	n.add(accepting)
	slices.Sort(n.Forwarded)
	n.Forwarded = slices.Compact(n.Forwarded)
}

// add adds interfaces whose accept_ra is to be 2.
func (n *forwardingNote) add(interfaces map[string]int) {
	if n.Interfaces == nil {
		n.Interfaces = map[string]int{}
	}
	maps.Copy(n.Interfaces, interfaces)
}

// later returns the hardware that has come since the note was written and would accept
// router advertisements if it did not forward, and the highest index of what has come.
// Other interfaces that come may lead to containers and virtual machines, which must not be
// taken for routers. Each interface is looked at once, so that who sets it later decides.
// None is returned if new interfaces forwarded before.
func (n *forwardingNote) later(all []interface6) (found map[string]int, newest int) {
	found, newest = map[string]int{}, n.Newest
	forwarded := slices.Contains(n.Forwarded, "default")
	for _, i := range all {
		if !i.hardware || i.index <= n.Newest {
			continue
		}
		newest = max(newest, i.index)
		if !forwarded && i.forwards != "0" && i.acceptRA == "1" {
			found[i.name] = i.index
		}
	}
	return found, newest
}

// accept writes the note, and makes the machine accept router advertisements on interfaces
// in it also while it forwards.
func (n *forwardingNote) accept(note string, interfaces map[string]int) error {
	if err := n.write(note); err != nil {
		return err
	}
	for name := range interfaces {
		if err := changeSetting(acceptRA(name), "1", "2"); err != nil {
			return err
		}
	}
	return nil
}

func (n *forwardingNote) write(note string) error {
	content, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return writeFile(note, content)
}

// AcceptRouters makes the machine accept router advertisements on hardware that has come
// since clusters made it forward IPv6. Without such a cluster it does nothing.
func (n *Network) AcceptRouters() error {
	note, err := n.note()
	if err != nil || note == "" {
		return err
	}
	had, _, newest, err := n.laterHardware(note)
	if err != nil || newest == had.Newest {
		return err
	}
	return locked(note, func() error {
		had, found, newest, err := n.laterHardware(note)
		if err != nil || newest == had.Newest {
			return err
		}
		had.add(found)
		if err := had.accept(note, found); err != nil {
			return err
		}
		// One that got another name meanwhile was missed. The kernel tells of the name.
		if _, missed, _, err := n.laterHardware(note); err != nil || len(missed) > 0 {
			return err
		}
		had.Newest = newest // last, so that what failed is tried again
		return had.write(note)
	})
}

// WatchInterfaces returns a channel that receives after interfaces of the machine have
// come, gone or changed, for AcceptRouters, until ctx ends.
func WatchInterfaces(ctx context.Context) (<-chan struct{}, error) {
	return netdump.Watch(ctx, unix.RTNLGRP_LINK)
}

// laterHardware returns the note of this boot, an empty one if there is none, and what
// later returns.
func (n *Network) laterHardware(note string) (had forwardingNote, found map[string]int, newest int, err error) {
	had, err = readNote(note)
	if errors.Is(err, fs.ErrNotExist) {
		return forwardingNote{}, nil, 0, nil
	}
	boot, err2 := thisBoot()
	if err := errors.Join(err, err2); err != nil || had.Boot != boot {
		return forwardingNote{}, nil, 0, err
	}
	all, err := interfaces6(n.hardware)
	if err != nil {
		return forwardingNote{}, nil, 0, err
	}
	found, newest = had.later(all)
	return had, found, newest, nil
}

// interfaces6 returns the interfaces that have IPv6, and which of them are hardware. Those
// of clusters and ports of bridges are not among them: pods must not be taken for routers.
func interfaces6(hardware func(netlink.Link) bool) ([]interface6, error) {
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	bridges := map[int]bool{}
	for _, link := range links {
		bridges[link.Attrs().Index] = link.Type() == "bridge"
	}
	var all []interface6
	for _, link := range links {
		is := link.Attrs()
		if is.Flags&net.FlagLoopback != 0 || clusternames.IsClusters(is.Name) || bridges[is.MasterIndex] {
			continue
		}
		i := interface6{name: is.Name, index: is.Index, hardware: hardware(link)}
		i.acceptRA, err = readSetting(acceptRA(is.Name))
		if err == nil {
			i.forwards, err = readSetting(forwards(is.Name))
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was just removed, or has no IPv6
		case err != nil:
			return nil, err
		default:
			all = append(all, i)
		}
	}
	return all, nil
}

// isHardware reports whether an interface is not made by software, or is loopback.
func isHardware(link netlink.Link) bool { return link.Type() == "device" }

// need is who else needs forwarding of IPv6 on this machine.
type need int

const (
	byNobody   need = iota
	byPrograms      // programs that are no cluster
	byCluster       // another cluster, which then restores the settings
)

// restoreIPv6 undoes what forwardIPv6 has noted, unless somebody else needs it or has
// changed it since, and removes the note, unless another cluster is to do that. needed
// returns who needs forwarding; noted are the interfaces that are not theirs.
func restoreIPv6(note string, needed func(noted map[string]int) (need, error)) error {
	return locked(note, func() error {
		if err := sharedfile.RemoveUnfinished(note); err != nil {
			return err
		}
		n, err := readNote(note)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		boot, err2 := thisBoot()
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if n.Boot != boot { // the settings were gone with the machine's stop
			return os.Remove(note)
		}
		switch by, err := needed(n.Interfaces); {
		case err != nil || by == byCluster:
			return err
		case by == byNobody:
			if err := n.undo(); err != nil {
				return err
			}
		}
		return os.Remove(note)
	})
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
	for name, index := range n.Interfaces {
		link, err := netlink.LinkByIndex(index)
		if isMissing(err) {
			continue
		}
		if err == nil {
			err = changeSetting(acceptRA(link.Attrs().Name), "2", "1")
		}
		if err != nil {
			return fmt.Errorf("restoring interface %s: %w", name, err)
		}
	}
	return nil
}

// othersForward returns who else of this machine seems to need forwarding of IPv6. The
// signs are tables of a cluster, or a virtual interface with an address for any
// destination, such as a bridge of containers. noted are interfaces that were there before.
func (n *Network) othersForward(noted map[string]int) (need, error) {
	conn, err := nftables.New()
	if err != nil {
		return byNobody, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return byNobody, fmt.Errorf("listing nftables tables: %w", err)
	}
	for _, t := range tables {
		if cluster, ok := clusternames.ClusterOfTable(t.Name, []string{n.config.Name}); ok && cluster != n.config.Name {
			return byCluster, nil
		}
	}
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return byNobody, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range links {
		name := link.Attrs().Name
		if _, before := noted[name]; before || isHardware(link) || clusternames.IsClusters(name) {
			continue
		}
		addresses, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
		if err != nil && linkExists(link) {
			return byNobody, fmt.Errorf("listing the addresses of %s: %w", name, err)
		}
		if slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
			address, _ := netip.AddrFromSlice(a.IP)
			return address.IsGlobalUnicast()
		}) {
			return byPrograms, nil
		}
	}
	return byNobody, nil
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

// readNote returns a note. One that is damaged says nothing, and one that other users can
// change is an error.
func readNote(path string) (n forwardingNote, err error) {
	raw, err := sharedfile.ReadOwn(path, maxNote)
	if err == nil && json.Unmarshal(raw, &n) != nil {
		n = forwardingNote{}
	}
	return n, err
}
