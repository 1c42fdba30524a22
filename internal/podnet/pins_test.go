package podnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A pod reaches its neighbours with its own addresses alone, from when the CNI library has
// recorded it until it is gone.
func TestPinnedAddresses(t *testing.T) {
	var err error
	inNamespace(t, func() { err = pinnedAddresses(t) })
	if errors.Is(err, errNoBridgeTables) {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
}

var errNoBridgeTables = errors.New("the kernel has no nftables for bridges")

func pinnedAddresses(t *testing.T) error {
	n := New(Config{Name: "t"})
	n.records = t.TempDir()
	w, err := newWire(t)
	if err != nil {
		return err
	}
	pins := n.Pins()
	expect := func(when string, pinned bool) error {
		for name, c := range w.frames() {
			if passed, err := w.passes(c.frame); err != nil || passed != (c.own || !pinned) {
				t.Errorf("%s: %s passes: %v, %v", when, name, passed, err)
			}
		}
		intact, err := pins.Intact()
		if err == nil && !intact {
			err = fmt.Errorf("%s: the pins are not intact", when)
		}
		return err
	}
	if err := pins.Apply(); errors.Is(err, errors.ErrUnsupported) {
		return errNoBridgeTables
	} else if err != nil {
		return err
	}
	if err := expect("before the record", false); err != nil {
		return err
	}
	record := filepath.Join(n.records, "t-"+strings.Repeat("0a", 32)+"-eth0")
	content := fmt.Sprintf(`{"kind": "cniCacheV1", "result": {"interfaces": [{"name": "cor-t", "mac": "5e:e9:00:00:00:01"}, {"name": "veth1", "mac": "5e:e9:00:00:00:02"},
		{"name": "eth0", "mac": %q, "sandbox": "/run/netns/x"}], "ips": [{"address": "10.244.3.2/24", "interface": 2}, {"address": "fd00:3::2/64", "interface": 2}]}}`, w.pod)
	for _, written := range []string{content[:40], content} { // the library does not write it at once
		if err := os.WriteFile(record, []byte(written), 0o600); err != nil {
			return err
		}
		if err := pins.Apply(); err != nil {
			return err
		}
	}
	if err := expect("with the record", true); err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.DelTable(pins.table())
	if err := conn.Flush(); err != nil {
		return err
	}
	if intact, err := pins.Intact(); intact || err != nil {
		return fmt.Errorf("the table is gone, and it is intact: %v, %w", intact, err)
	}
	if err := pins.Apply(); err != nil {
		return err
	}
	if err := errors.Join(expect("after the table was lost", true), os.Remove(record), pins.Apply()); err != nil {
		return err
	}
	if err := errors.Join(expect("after the pod", false), n.removePins(), n.removePins()); err != nil {
		return err
	}
	if tables, err := conn.ListTables(); err != nil || len(tables) != 0 {
		return fmt.Errorf("%d tables are left: %w", len(tables), err)
	}
	return nil
}

// wire has the interfaces of two pods on one bridge. The first one sends to the second.
type wire struct {
	pod, neighbour net.HardwareAddr
	from, to       int // sockets
	sent           uint32
}

func newWire(t *testing.T) (*wire, error) {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cor-t"}}
	if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge)); err != nil {
		return nil, err
	}
	w := &wire{}
	for name, end := range map[string]struct {
		socket   *int
		hardware *net.HardwareAddr
	}{"1": {&w.from, &w.pod}, "2": {&w.to, &w.neighbour}} {
		port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth" + name, MasterIndex: bridge.Attrs().Index}, PeerName: "pod" + name}
		if err := netlink.LinkAdd(port); err != nil {
			return nil, err
		}
		pod, err := netlink.LinkByName(port.PeerName)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(netlink.LinkSetUp(port), netlink.LinkSetUp(pod)); err != nil {
			return nil, err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = unix.Close(socket) })
		err = errors.Join(
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: pod.Attrs().Index}),
			unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
		)
		if err != nil {
			return nil, err
		}
		*end.socket, *end.hardware = socket, pod.Attrs().HardwareAddr
	}
	return w, nil
}

// passes sends a frame, and one that always passes, and reports whether the first one
// arrives, too. It may be the later one: two processors may each handle one of them.
func (w *wire) passes(frame []byte) (bool, error) {
	buffer := make([]byte, 2048)
	for range 1000 { // the ports may not be up yet
		w.sent++
		last := arpFrame(w.pod, w.pod, "10.244.3.2", w.sent)
		for _, f := range [][]byte{frame, last} {
			if _, err := unix.Write(w.from, f); err != nil {
				return false, err
			}
		}
		passed, arrived := false, false // the frame, and the last one
		for !passed || !arrived {
			size, err := unix.Read(w.to, buffer)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return false, err
			case bytes.Equal(buffer[:size], frame), bytes.Equal(tagged(buffer[:size]), frame): // the socket may take the tag off
				passed = true
			case bytes.Equal(buffer[:size], last):
				arrived = true
			}
		}
		if arrived {
			return passed, nil
		}
	}
	return false, errors.New("no frame arrives")
}

// sample is a frame, and whether the addresses in it are the pod's own.
type sample struct {
	frame []byte
	own   bool
}

// frames returns what the pod sends, by name.
func (w *wire) frames() map[string]sample {
	const solicited, advertised, router, redirect = 135, 136, 134, 137
	return map[string]sample{
		"an ARP request":                    {arpFrame(w.pod, w.pod, "10.244.3.2", 0), true},
		"one with the address of another":   {arpFrame(w.pod, w.pod, "10.244.3.3", 0), false},
		"one with another hardware address": {arpFrame(w.pod, w.neighbour, "10.244.3.2", 0), false},
		"one in the frame of another":       {arpFrame(w.neighbour, w.pod, "10.244.3.2", 0), false},
		"one with a priority":               {tagged(arpFrame(w.pod, w.pod, "10.244.3.4", 0)), false},
		"a packet":                          {ipv4Frame(w.pod, "10.244.3.2"), true},
		"a packet of another":               {ipv4Frame(w.pod, "10.244.3.3"), false},
		"a packet of IPv6":                  {ipv6Frame(w.pod, "fd00:3::2", 253), true},
		"one of another":                    {ipv6Frame(w.pod, "fd00:3::3", 253), false},
		"one of a link":                     {ipv6Frame(w.pod, "fe80::2", 253), true},
		"a search for neighbours":           {ipv6Frame(w.pod, "::", unix.IPPROTO_ICMPV6, discovery(solicited, "fd00:3::3")...), true},
		"an answer":                         {ipv6Frame(w.pod, "fd00:3::2", unix.IPPROTO_ICMPV6, discovery(advertised, "fd00:3::2")...), true},
		"an answer for a link":              {ipv6Frame(w.pod, "fe80::2", unix.IPPROTO_ICMPV6, discovery(advertised, "fe80::2")...), true},
		"an answer for another":             {ipv6Frame(w.pod, "fe80::2", unix.IPPROTO_ICMPV6, discovery(advertised, "fd00:3::3")...), false},
		"a router":                          {ipv6Frame(w.pod, "fe80::2", unix.IPPROTO_ICMPV6, discovery(router, "fd00:3::2")...), false},
		"a redirect":                        {ipv6Frame(w.pod, "fe80::2", unix.IPPROTO_ICMPV6, discovery(redirect, "fd00:3::2")...), false},
		"another protocol":                  {frameOf(w.pod, 0x88b5, make([]byte, 46)...), false},
	}
}

// frameOf returns a frame to all of the bridge.
func frameOf(from net.HardwareAddr, protocol uint16, payload ...byte) []byte {
	return slices.Concat(bytes.Repeat([]byte{0xff}, 6), from, binary.BigEndian.AppendUint16(nil, protocol), payload)
}

// tagged returns a frame with a tag of VLAN 0, which receivers ignore (IEEE 802.1Q).
func tagged(frame []byte) []byte {
	return slices.Concat(frame[:12], []byte{0x81, 0, 0, 0}, frame[12:])
}

// arpFrame returns an ARP request that says that an address has a hardware address.
func arpFrame(from, hardware net.HardwareAddr, address string, target uint32) []byte {
	return frameOf(from, unix.ETH_P_ARP, slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 1}, hardware, netip.MustParseAddr(address).AsSlice(), make([]byte, 6), binary.BigEndian.AppendUint32(nil, target))...)
}

func ipv4Frame(from net.HardwareAddr, address string) []byte {
	header := slices.Concat([]byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0}, netip.MustParseAddr(address).AsSlice(), []byte{10, 244, 3, 255})
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum>>16+sum&0xffff)) // br_netfilter drops packets with a wrong one
	return frameOf(from, unix.ETH_P_IP, header...)
}

func ipv6Frame(from net.HardwareAddr, address string, protocol byte, body ...byte) []byte {
	header := []byte{0x60, 0, 0, 0, 0, byte(len(body)), protocol, 255}
	return frameOf(from, unix.ETH_P_IPV6, slices.Concat(header, netip.MustParseAddr(address).AsSlice(), netip.MustParseAddr("ff02::1").AsSlice(), body)...)
}

// discovery returns a message of neighbour discovery about an address (RFC 4861).
func discovery(kind byte, target string) []byte {
	return slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr(target).AsSlice())
}
