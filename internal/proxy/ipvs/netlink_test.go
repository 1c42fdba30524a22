package ipvs

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// little skips a test of bytes on machines with another order of bytes.
func little(t *testing.T) {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
}

// raw decodes bytes in hexadecimal digits, with spaces and lines between.
func raw(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The messages of these tests follow linux/ip_vs.h by hand: each line is an attribute,
// with its length and type.
const (
	// service4 is TCP 10.96.0.20:80 with rr and persistence of 10,800 s.
	service4 = `
		5400 0100
		0600 0100 0200 0000
		0600 0200 0600 0000
		1400 0300 0a600014 00000000 00000000 00000000
		0600 0400 0050 0000
		0700 0600 727200 00
		0c00 0700 01000000 ffffffff
		0800 0800 302a0000
		0800 0900 ffffffff`
	// service6 is UDP [fd00:96::20]:53 with mh by the client's port.
	service6 = `
		5400 0100
		0600 0100 0a00 0000
		0600 0200 1100 0000
		1400 0300 fd000096 00000000 00000000 00000020
		0600 0400 0035 0000
		0700 0600 6d6800 00
		0c00 0700 10000000 ffffffff
		0800 0800 00000000
		0800 0900 80000000`
	// dest4 is 10.9.1.3:8080 with weight 1.
	dest4 = `
		4800 0200
		0600 0b00 0200 0000
		1400 0100 0a090103 00000000 00000000 00000000
		0600 0200 1f90 0000
		0800 0300 00000000
		0800 0400 01000000
		0800 0500 00000000
		0800 0600 00000000`
)

func TestEncoding(t *testing.T) {
	little(t)
	f4 := frontend{netip.MustParseAddrPort("10.96.0.20:80"), v1.ProtocolTCP}
	f6 := frontend{netip.MustParseAddrPort("[fd00:96::20]:53"), v1.ProtocolUDP}
	to := netip.MustParseAddrPort("10.9.1.3:8080")
	for name, c := range map[string]struct {
		got  []*nl.RtAttr
		want string
	}{
		"a virtual server of IPv4": {[]*nl.RtAttr{serviceAttribute(f4, server{scheduler: "rr", persistence: 10800})}, service4},
		"a virtual server of IPv6": {[]*nl.RtAttr{serviceAttribute(f6, server{scheduler: "mh", sourcePort: true})}, service6},
		"the key of one": {[]*nl.RtAttr{f4.attribute()}, `
			3000 0100
			0600 0100 0200 0000
			0600 0200 0600 0000
			1400 0300 0a600014 00000000 00000000 00000000
			0600 0400 0050 0000`},
		"a destination": {[]*nl.RtAttr{destinationAttribute(to, 1)}, dest4},
		"timeouts":      {timeoutAttributes(Timeouts{TCP: 15 * time.Minute, UDP: 5 * time.Minute}), `0800 0400 84030000 0800 0500 00000000 0800 0600 2c010000`},
	} {
		var got []byte
		for _, a := range c.got {
			got = append(got, a.Serialize()...)
		}
		if want := raw(t, c.want); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%x, want\n%x", name, got, want)
		}
	}
	if got := header(cmdNewService).Serialize(); !bytes.Equal(got, []byte{1, 1, 0, 0}) || header(0).Len() != len(got) {
		t.Errorf("the header is %x", got)
	}
}

func TestDecoding(t *testing.T) {
	little(t)
	f, s, ok, err := parseService(raw(t, service4))
	if want := (frontend{netip.MustParseAddrPort("10.96.0.20:80"), v1.ProtocolTCP}); err != nil || !ok || f != want || s != (server{scheduler: "rr", persistence: 10800}) {
		t.Errorf("%v: %+v, %v, %v", f, s, ok, err)
	}
	f, s, ok, err = parseService(raw(t, service6))
	if want := (frontend{netip.MustParseAddrPort("[fd00:96::20]:53"), v1.ProtocolUDP}); err != nil || !ok || f != want || s != (server{scheduler: "mh", sourcePort: true}) {
		t.Errorf("%v: %+v, %v, %v", f, s, ok, err)
	}
	// The kernel names a virtual server by a mark instead of an address.
	if _, _, ok, err := parseService(raw(t, `1400 0100 0600 0100 0200 0000 0800 0500 07000000`)); ok || err != nil {
		t.Errorf("a virtual server of a mark: %v, %v", ok, err)
	}
	// As the kernel tells a destination: with counts of connections.
	to, d, err := parseDestination(raw(t, `
		4000 0200
		1400 0100 0a090103 00000000 00000000 00000000
		0600 0200 1f90 0000
		0800 0400 00000000
		0800 0700 02000000
		0800 0800 03000000
		0600 0b00 0200 0000`), false)
	if err != nil || to != netip.MustParseAddrPort("10.9.1.3:8080") || d != (destination{0, 5}) {
		t.Errorf("%s: %+v, %v", to, d, err)
	}
	for _, text := range []string{`0800 0100 0600 0100`, `0c00 0100 0600 0100 0200 0000`, `ff`, `ffff 0100`} {
		if _, _, ok, err := parseService(raw(t, text)); ok || err == nil {
			t.Errorf("%s is a virtual server: %v, %v", text, ok, err)
		}
	}
	if _, _, err := parseDestination(raw(t, `0c00 0200 0600 0200 1f90 0000`), true); err == nil {
		t.Error("a destination without an address is read")
	}
}

// TestWithoutIPVS checks what is said on a kernel without IPVS, and that its module is
// loaded if it is there.
func TestWithoutIPVS(t *testing.T) {
	loaded, broken := false, errors.New("broken")
	find := func() error {
		if loaded {
			return nil
		}
		return unix.ENOENT
	}
	err := available(find, func() error { return broken })
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "can't use the IPVS proxier") || !strings.Contains(err.Error(), "modprobe ip_vs") {
		t.Errorf("without the module: %v", err)
	}
	if err := available(find, func() error { loaded = true; return nil }); err != nil {
		t.Errorf("with the module: %v", err)
	}
}
