package segment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/netdump"
)

// Link is the interface of a further node on the segment.
const Link = "eth0"

// Member is a further node of a machine.
type Member struct {
	Segment Segment
	Node    int // from 2
	// Namespace is the path at which the node's network namespace is mounted.
	Namespace string
	// HostName is the name of the node's host.
	HostName string
}

// Inside reports whether this process is in the node's network namespace.
func (m Member) Inside() (bool, error) {
	there, err := os.Stat(m.Namespace)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	own, err := os.Stat("/proc/self/ns/net")
	return err == nil && os.SameFile(there, own), err
}

// Enter joins the segment and then replaces this process by the same program
// with the same arguments in the node's namespaces: of the network, and of the
// host name. It returns an error, or not at all. Call it in the machine's network
// namespace.
func (m Member) Enter() error {
	parent := os.Getppid()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		failed <- m.enter(parent)
	}()
	return <-failed
}

func (m Member) enter(parent int) error {
	machine, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { _ = machine.Close() }()
	if err := m.join(machine); err != nil {
		return err
	}
	if err := m.switchTo(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("making a namespace for the host name: %w", err)
	}
	if err := unix.Sethostname([]byte(m.HostName)); err != nil {
		return fmt.Errorf("setting the host name %s: %w", m.HostName, err)
	}
	// The kernel keeps this setting for each thread, and this thread becomes the
	// process.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking for a signal at the end of the supervisor: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the supervisor has ended")
	}
	return fmt.Errorf("executing this program in the node's namespaces: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// join makes what is missing of the namespace and the interface. The goroutine
// must be locked to a thread in the machine's namespace, where the thread is
// afterwards as well.
func (m Member) join(machine netns.NsHandle) error {
	if err := m.hold(machine); err != nil {
		return fmt.Errorf("making the network namespace %s: %w", m.Namespace, err)
	}
	connected, err := m.connected(machine)
	if err != nil {
		return err
	}
	if !connected {
		if err := m.connect(machine); err != nil {
			return err
		}
	}
	if err := m.Segment.Keep(m.Node); err != nil {
		return err
	}
	return m.inside(machine, m.address)
}

// hold makes the namespace and mounts it, unless it is mounted.
func (m Member) hold(machine netns.NsHandle) error {
	mounted, err := m.mounted()
	if err != nil || mounted {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(m.mount(), netns.Set(machine))
}

// mount mounts the namespace of this thread at the member's path.
func (m Member) mount() error {
	if err := os.MkdirAll(filepath.Dir(m.Namespace), 0o711); err != nil {
		return err
	}
	f, err := os.OpenFile(m.Namespace, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return unix.Mount("/proc/thread-self/ns/net", m.Namespace, "", unix.MS_BIND, "")
}

// mounted reports whether a namespace is mounted at the member's path.
func (m Member) mounted() (bool, error) {
	points, err := mountinfo.Points()
	if err != nil {
		return false, err
	}
	path, err := filepath.EvalSymlinks(m.Namespace)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && slices.Contains(points, path), err
}

// switchTo puts the thread into the node's network namespace.
func (m Member) switchTo() error {
	there, err := netns.GetFromPath(m.Namespace)
	if err != nil {
		return fmt.Errorf("opening the network namespace %s: %w", m.Namespace, err)
	}
	defer func() { _ = there.Close() }()
	if err := netns.Set(there); err != nil {
		return fmt.Errorf("entering the network namespace %s: %w", m.Namespace, err)
	}
	return nil
}

// inside calls f in the node's network namespace.
func (m Member) inside(machine netns.NsHandle, f func() error) error {
	if err := m.switchTo(); err != nil {
		return err
	}
	return errors.Join(f(), netns.Set(machine))
}

// connected reports whether both ends of the interface are where they belong.
func (m Member) connected(machine netns.NsHandle) (both bool, err error) {
	port, err := netlink.LinkByName(m.Segment.port(m.Node))
	if isMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = m.inside(machine, func() error {
		link, err := netlink.LinkByName(Link)
		if isMissing(err) {
			return nil
		}
		// Each end of a pair names the other one as its parent.
		both = err == nil && link.Attrs().ParentIndex == port.Attrs().Index && port.Attrs().ParentIndex == link.Attrs().Index
		return err
	})
	return both, err
}

// connect makes the pair of interfaces, in place of what is left of another one,
// unless another program's interface has the name in the node's namespace.
func (m Member) connect(machine netns.NsHandle) error {
	if err := removeLink(m.Segment.port(m.Node)); err != nil {
		return err
	}
	if err := m.inside(machine, m.removeLost); err != nil {
		return err
	}
	there, err := netns.GetFromPath(m.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = there.Close() }()
	err = netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: m.Segment.port(m.Node)}, PeerName: Link, PeerNamespace: netlink.NsFd(int(there)),
	})
	if err != nil {
		return fmt.Errorf("making interface %s: %w", m.Segment.port(m.Node), err)
	}
	return nil
}

// address sets the interfaces of the node up, with its address and the way to the
// machine. It must be called in the node's namespace.
func (m Member) address() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil && lo.Attrs().Flags&net.FlagUp == 0 {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("setting the loopback interface up: %w", err)
	}
	link, err := netlink.LinkByName(Link)
	if err == nil {
		err = m.Segment.setUp(link, m.Segment.Addresses(m.Node))
	}
	if err != nil {
		return fmt.Errorf("giving interface %s the addresses %v: %w", Link, m.Segment.Addresses(m.Node), err)
	}
	var errs []error
	for _, gateway := range m.Segment.Addresses(1) {
		if err := routeOut(link, gateway); err != nil {
			errs = append(errs, fmt.Errorf("routing to the machine by %s: %w", gateway, err))
		}
	}
	return errors.Join(errs...)
}

// routeOut gives the node its default route of the gateway's family, unless it has
// it.
func routeOut(link netlink.Link, gateway netip.Addr) error {
	family, everywhere := netlink.FAMILY_V4, net.IPv4zero
	if gateway.Is6() {
		family, everywhere = netlink.FAMILY_V6, net.IPv6zero
	}
	way := &netlink.Route{
		LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN, Gw: gateway.AsSlice(), Dst: &net.IPNet{IP: everywhere, Mask: net.CIDRMask(0, gateway.BitLen())},
	}
	present, err := netdump.Complete(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, way, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_GW|netlink.RT_FILTER_DST)
	})
	if err != nil || len(present) > 0 {
		return err
	}
	return netlink.RouteReplace(way)
}

// ErrLeft reports that a node is not on its segment any more.
var ErrLeft = errors.New("the node has lost its interface on the segment of its machine")

// Check returns ErrLeft if the node's interface is gone, or another one has its
// name. It restores its addresses and the mount of the namespace. It must be called
// in that namespace.
func (m Member) Check() error {
	mounted, err := m.mounted()
	if err == nil && !mounted {
		err = m.mount()
	}
	if err != nil {
		return fmt.Errorf("mounting the network namespace at %s: %w", m.Namespace, err)
	}
	link, err := netlink.LinkByName(Link)
	if isMissing(err) || err == nil && !crosses(link) {
		return ErrLeft
	}
	return m.address()
}

// removeLost removes the node's interface, whose other end is not the port of the
// segment. It must be called in the node's namespace.
func (m Member) removeLost() error {
	link, err := netlink.LinkByName(Link)
	if isMissing(err) {
		return nil
	}
	if err == nil && !crosses(link) {
		err = fmt.Errorf("another program has made it: rename it with nsenter --net=%s ip link set %s name NAME", m.Namespace, Link)
	}
	if err != nil {
		return fmt.Errorf("looking for interface %s of node %d: %w", Link, m.Node, err)
	}
	return removeLink(Link)
}

// crosses reports whether the interface is an end of a pair whose other end is in
// another network namespace, as the node's is.
func crosses(link netlink.Link) bool {
	return link.Type() == "veth" && link.Attrs().NetNsID >= 0
}

// Remove removes the interface and the namespace of a node whose processes have
// ended. It is no error if there is nothing to remove. Call it in the machine's
// network namespace.
func (m Member) Remove() error {
	if err := removeLink(m.Segment.port(m.Node)); err != nil {
		return err
	}
	mounted, err := m.mounted()
	if err != nil {
		return err
	}
	if mounted {
		if err := unix.Unmount(m.Namespace, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting the network namespace %s: %w", m.Namespace, err)
		}
	}
	if err := os.Remove(m.Namespace); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
