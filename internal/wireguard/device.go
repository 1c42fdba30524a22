package wireguard

import (
	"crypto/ecdh"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device keeps one interface of this node. Its methods may be called by several
// goroutines.
type Device struct {
	key  *ecdh.PrivateKey
	port uint16
	log  func(format string, args ...any)

	mu      sync.Mutex // guards what follows
	program *program   // encrypts in place of the kernel; nil if it does not
	last    []Peer     // those that the kernel's interface was given
}

// New returns a device that has a private key, and receives packets at a UDP port. log
// gets a line for what WireGuard of this process fails to do. New starts nothing.
func New(key *ecdh.PrivateKey, port uint16, log func(format string, args ...any)) *Device {
	return &Device{key: key, port: port, log: log}
}

// Identity returns what other nodes must know of this one.
func (d *Device) Identity() Identity { return Identity{Key(d.key.PublicKey().Bytes()), d.port} }

// Apply makes the interface with a name, in the network namespace of this thread, one
// of WireGuard with the given MTU and peers, in place of any other one of that name. It
// returns the interface, which is up, and whether anything had to be changed.
func (d *Device) Apply(name string, mtu int, peers []Peer) (link netlink.Link, changed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	link, changed, err = d.keepInterface(name, mtu)
	if err != nil {
		return nil, changed, d.explain(err)
	}
	var did bool
	if d.program != nil {
		did, err = d.program.setPeers(peers)
	} else {
		did, err = d.setKernel(name, peers)
	}
	if err == nil && link.Attrs().Flags&net.FlagUp == 0 { // it has the port once it is up
		did, err = true, netlink.LinkSetUp(link)
	}
	return link, changed || did, d.explain(err)
}

// explain says of an error that another program has the port.
func (d *Device) explain(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("another program has UDP port %d, which is for the encrypted packets of other nodes: end it: %w", d.port, err)
	}
	return err
}

// keepInterface returns the interface, and whether it had to be made or changed. The
// caller holds d.mu.
func (d *Device) keepInterface(name string, mtu int) (link netlink.Link, changed bool, err error) {
	present, err := netlink.LinkByName(name)
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	switch {
	case missing:
	case err != nil:
		return nil, false, err
	case d.program != nil && d.program.has(present, mtu):
		return present, false, nil
	case d.program == nil && present.Type() == new(netlink.Wireguard).Type():
		if present.Attrs().MTU != mtu {
			changed, err = true, netlink.LinkSetMTU(present, mtu)
		}
		return present, changed, err
	default:
		if err := remove(present); err != nil {
			return nil, false, err
		}
	}
	d.stop()
	d.last = nil
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = name, mtu
	made := &netlink.Wireguard{LinkAttrs: attributes}
	err = netlink.LinkAdd(made)
	if errors.Is(err, unix.EOPNOTSUPP) { // the kernel has no WireGuard
		d.program, link, err = d.start(name, mtu)
		return link, true, err
	}
	return made, true, err
}

// remove removes an interface. It is no error if that was just removed.
func remove(link netlink.Link) error {
	err := netlink.LinkDel(link)
	if err != nil {
		if _, gone := netlink.LinkByIndex(link.Attrs().Index); gone != nil {
			return nil
		}
	}
	return err
}

// Moved says that the machine has other addresses. The next Apply gives all peers their
// endpoints again, so that what is sent to them leaves from the address that the machine
// has now: the program answers from the one to which a peer has sent, and would notice
// after 15 seconds that it is gone.
func (d *Device) Moved() {
	d.mu.Lock()
	defer d.mu.Unlock()
	forget(d.last)
	if d.program != nil {
		forget(d.program.peers)
	}
}

// forget makes all peers differ from those that are wanted, but not their keys: those of
// nodes that are gone must be removed.
func forget(peers []Peer) {
	for i := range peers {
		peers[i].Endpoint = netip.AddrPort{}
	}
}

// Stop ends what this process does for the interface, which goes with it if the kernel
// has no WireGuard. Apply starts it again.
func (d *Device) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
}

// stop is Stop. The caller holds d.mu.
func (d *Device) stop() {
	if d.program != nil {
		d.program.device.Close()
		d.program = nil
	}
}
