package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/netnamespace"
)

// host is what a Backend asks of the node apart from IPVS.
type host interface {
	// addresses returns the node's addresses: its own, and those of Services, which are
	// on the interface clusternames.VirtualLink, both in order. It leaves out link-local
	// ones: nothing answers there, and those of the pods' interfaces come and go.
	addresses() (own, virtual []netip.Addr, err error)
	// owner returns the alias of that interface. exists is false if there is none.
	owner() (alias string, exists bool, err error)
	// claim makes the interface, if it is not there, and gives it an alias.
	claim(alias string) error
	// add and remove change the addresses of the interface.
	add(list []netip.Addr) error
	remove(list []netip.Addr) error
	// discard removes the interface with all of its addresses.
	discard() error
	// set sets a setting of the kernel, if it has it; its name is a path below
	// /proc/sys/net.
	set(name, value string) error
}

// namespace is the host in a network namespace, by its file descriptor; 0 is that of the
// calling thread.
type namespace struct {
	fd  int
	log klog.Logger
}

// with calls do with a connection to the kernel.
func (n namespace) with(do func(h *netlink.Handle) error) error {
	h, err := openHandle(n.fd)
	if err != nil {
		return err
	}
	defer h.Close()
	return do(h)
}

// virtualLink returns the interface of the addresses of Services, nil if there is none.
func virtualLink(h *netlink.Handle) (netlink.Link, error) {
	link, err := h.LinkByName(clusternames.VirtualLink)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the interface %s: %w", clusternames.VirtualLink, err)
	}
	return link, nil
}

func (n namespace) addresses() (own, virtual []netip.Addr, err error) {
	err = n.with(func(h *netlink.Handle) error {
		link, err := virtualLink(h)
		if err != nil {
			return err
		}
		list, err := netdump.Complete(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
		if err != nil {
			return fmt.Errorf("listing the node's addresses: %w", err)
		}
		for _, one := range list {
			a, ok := netip.AddrFromSlice(one.IP)
			a = a.Unmap()
			switch {
			case !ok || a.IsLinkLocalUnicast():
			case link == nil || one.LinkIndex != link.Attrs().Index:
				own = append(own, a)
			default:
				virtual = append(virtual, a)
			}
		}
		return nil
	})
	for _, list := range []*[]netip.Addr{&own, &virtual} {
		slices.SortFunc(*list, netip.Addr.Compare)
		*list = slices.Compact(*list)
	}
	return own, virtual, err
}

func (n namespace) owner() (alias string, exists bool, err error) {
	err = n.with(func(h *netlink.Handle) error {
		link, err := virtualLink(h)
		if err == nil && link != nil {
			alias, exists = link.Attrs().Alias, true
		}
		return err
	})
	return alias, exists, err
}

func (n namespace) claim(alias string) error {
	return n.with(func(h *netlink.Handle) error {
		link, err := virtualLink(h)
		if err != nil {
			return err
		}
		if link == nil {
			if err := h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: clusternames.VirtualLink}}); err != nil {
				return fmt.Errorf("making the interface %s (module dummy): %w", clusternames.VirtualLink, err)
			}
			if link, err = h.LinkByName(clusternames.VirtualLink); err != nil {
				return fmt.Errorf("looking for the new interface %s: %w", clusternames.VirtualLink, err)
			}
		}
		if link.Attrs().Alias != alias {
			if err := h.LinkSetAlias(link, alias); err != nil {
				return fmt.Errorf("setting the alias of %s: %w", clusternames.VirtualLink, err)
			}
		}
		// So that its addresses of IPv6 do not depend on what the kernel does with those of
		// an interface that is down.
		return h.LinkSetUp(link)
	})
}

// change calls do with the interface and each of some addresses.
func (n namespace) change(list []netip.Addr, do func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	if len(list) == 0 {
		return nil
	}
	return n.with(func(h *netlink.Handle) error {
		link, err := virtualLink(h)
		switch {
		case err != nil:
			return err
		case link == nil:
			return fmt.Errorf("the interface %s is gone", clusternames.VirtualLink)
		}
		for _, a := range list {
			address := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
			if a.Is6() {
				address.Flags = unix.IFA_F_NODAD // nobody else answers for it on this interface
			}
			if err := do(h, link, address); err != nil {
				return fmt.Errorf("changing the address %s of %s: %w", a, clusternames.VirtualLink, err)
			}
		}
		return nil
	})
}

func (n namespace) add(list []netip.Addr) error {
	return n.change(list, func(h *netlink.Handle, link netlink.Link, address *netlink.Addr) error {
		return h.AddrReplace(link, address)
	})
}

func (n namespace) remove(list []netip.Addr) error {
	return n.change(list, func(h *netlink.Handle, link netlink.Link, address *netlink.Addr) error {
		if err := h.AddrDel(link, address); !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
		return nil
	})
}

func (n namespace) discard() error {
	return n.with(func(h *netlink.Handle) error {
		link, err := virtualLink(h)
		if err != nil || link == nil {
			return err
		}
		return h.LinkDel(link)
	})
}

func (n namespace) set(name, value string) error {
	file := filepath.Join("/proc/sys/net", name)
	return netnamespace.Do(n.fd, func() error {
		raw, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			n.log.V(2).Info("The kernel does not have a setting of IPVS", "file", file)
			return nil
		}
		if err != nil || strings.TrimSpace(string(raw)) == value {
			return err
		}
		n.log.Info("Changing a setting of the kernel, which the mode ipvs needs", "file", file, "value", value, "was", strings.TrimSpace(string(raw)))
		return os.WriteFile(file, []byte(value), 0o644)
	})
}
