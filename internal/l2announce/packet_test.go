package l2announce

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPackets compares what is sent with the packets as the RFCs draw them.
func TestPackets(t *testing.T) {
	own, client := hardware{2, 0, 0, 0, 0, 1}, hardware{2, 0, 0, 0, 0, 9}
	v4, v6 := netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("2001:db8::1:100")
	asks4 := packet{from: client, asks: v4, asker: netip.MustParseAddr("192.0.2.9")}
	asks6 := packet{from: client, asks: v6, asker: netip.MustParseAddr("2001:db8::9")}
	const (
		of6    = "20010db8000000000000000000010100"
		nobody = "00000000000000000000000000000000"
		all    = "ff020000000000000000000000000001"
		group  = "ff0200000000000000000001ff010100"
	)
	for name, c := range map[string]struct {
		got  []frame
		want [][2]string // hardware address and packet, in which CCCC is the checksum
	}{
		"ARP answer":       {[]frame{answer(asks4, own)}, [][2]string{{"020000000009", "0001 0800 06 04 0002 020000000001 c0000264 020000000009 c0000209"}}},
		"ARP announcement": {announcement(v4, own), [][2]string{{"ffffffffffff", "0001 0800 06 04 0001 020000000001 c0000264 000000000000 c0000264"}, {"ffffffffffff", "0001 0800 06 04 0002 020000000001 c0000264 020000000001 c0000264"}}},
		"ARP probe":        {[]frame{probe(v4, own, hardware{}), probe(v4, own, client)}, [][2]string{{"ffffffffffff", "0001 0800 06 04 0001 020000000001 00000000 000000000000 c0000264"}, {"020000000009", "0001 0800 06 04 0001 020000000001 00000000 000000000000 c0000264"}}},
		"advertisement":    {[]frame{answer(asks6, own)}, [][2]string{{"020000000009", "60000000 0020 3a ff " + of6 + "20010db8000000000000000000000009" + "88 00 CCCC 60000000" + of6 + "0201 020000000001"}}},
		"to one without":   {[]frame{answer(packet{from: client, asks: v6, asker: netip.IPv6Unspecified()}, own)}, [][2]string{{"020000000009", "60000000 0020 3a ff " + of6 + all + "88 00 CCCC 20000000" + of6 + "0201 020000000001"}}},
		"unsolicited":      {announcement(v6, own), [][2]string{{"333300000001", "60000000 0020 3a ff " + of6 + all + "88 00 CCCC 20000000" + of6 + "0201 020000000001"}}},
		"IPv6 probe":       {[]frame{probe(v6, own, hardware{}), probe(v6, own, client)}, [][2]string{{"3333ff010100", "60000000 0018 3a ff " + nobody + group + "87 00 CCCC 00000000" + of6}, {"020000000009", "60000000 0018 3a ff " + nobody + group + "87 00 CCCC 00000000" + of6}}},
	} {
		if len(c.got) != len(c.want) {
			t.Fatalf("%s: %d frames, want %d", name, len(c.got), len(c.want))
		}
		for i, got := range c.got {
			text := c.want[i][1]
			if strings.Contains(text, "CCCC") {
				// With its checksum, a message has the sum zero.
				source, destination := netip.AddrFrom16([16]byte(got.data[8:24])), netip.AddrFrom16([16]byte(got.data[24:40]))
				if sum := checksum(source, destination, got.data[40:]); sum != 0 {
					t.Errorf("%s: the checksum is wrong by %x", name, sum)
				}
				text = strings.Replace(text, "CCCC", hex.EncodeToString(got.data[42:44]), 1)
			}
			if to := hex.EncodeToString(got.to[:]); to != c.want[i][0] || !bytes.Equal(got.data, unhex(t, text)) {
				t.Errorf("%s: to %s\n%x, want %s\n%s", name, to, got.data, c.want[i][0], text)
			}
		}
	}
}

func TestParse(t *testing.T) {
	own, client := hardware{2, 0, 0, 0, 0, 1}, hardware{2, 0, 0, 0, 0, 9}
	v4, from4 := netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("192.0.2.9")
	v6, from6 := netip.MustParseAddr("2001:db8::100"), netip.MustParseAddr("2001:db8::9")
	question := neighbour(solicitation, 0, from6, solicitedNode(v6), v6, 1, 1, 2, 0, 0, 0, 0, 9)
	for name, c := range map[string]struct {
		data []byte
		want packet
		ok   bool
	}{
		"ARP request":          {arp(arpRequest, client, from4, hardware{}, v4), packet{from: client, asks: v4, asker: from4, claims: from4}, true},
		"padded":               {append(arp(arpRequest, client, from4, hardware{}, v4), make([]byte, 18)...), packet{from: client, asks: v4, asker: from4, claims: from4}, true},
		"ARP probe":            {probe(v4, client, own).data, packet{from: client, asks: v4, asker: netip.IPv4Unspecified()}, true},
		"ARP announcement":     {announcement(v4, client)[0].data, packet{from: client, claims: v4}, true},
		"the other form":       {announcement(v4, client)[1].data, packet{from: client, claims: v4}, true},
		"ARP reply":            {arp(arpReply, client, v4, own, from4), packet{from: client, claims: v4}, true},
		"of nobody":            {arp(arpReply, hardware{}, v4, own, from4), packet{}, false},
		"of everybody":         {arp(arpReply, everybody(), v4, own, from4), packet{}, false},
		"another operation":    {arp(8, client, v4, own, from4), packet{}, false},
		"short":                {arp(arpReply, client, v4, own, from4)[:27], packet{}, false},
		"another network":      {append([]byte{0, 6}, arp(arpReply, client, v4, own, from4)[2:]...), packet{}, false},
		"solicitation":         {question, packet{from: client, asks: v6, asker: from6}, true},
		"IPv6 probe":           {probe(v6, client, own).data, packet{from: client, asks: v6, asker: netip.IPv6Unspecified()}, true},
		"advertisement":        {announcement(v6, client)[0].data, packet{from: client, claims: v6}, true},
		"through a router":     {replaced(question, 7, 254), packet{}, false},
		"another protocol":     {replaced(question, 6, 17), packet{}, false},
		"router advertisement": {replaced(question, 40, 134), packet{}, false},
		"another code":         {replaced(question, 41, 1), packet{}, false},
		"for many":             {replaced(question, 48, 0xff), packet{}, false},
		"cut off":              {question[:63], packet{}, false},
		"without its option":   {question[:64], packet{}, false},
		"with padding":         {append(bytes.Clone(question), 0, 0), packet{from: client, asks: v6, asker: from6}, true},
		"of an odd length":     {replaced(append(bytes.Clone(question), 0, 0), 5, 33), packet{}, false},
		"a wrong checksum":     {replaced(question, 63, 1), packet{}, false},
	} {
		got, ok := parseNeighbour(c.data, client)
		if strings.Contains(name, "ARP") || len(c.data) < 50 {
			got, ok = parseARP(c.data)
		}
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

// replaced returns a packet with another byte.
func replaced(b []byte, at int, by byte) []byte {
	b = bytes.Clone(b)
	b[at] = by
	return b
}

func TestNeighbourFilter(t *testing.T) {
	vm, err := bpf.NewVM(neighbourFilter())
	if err != nil {
		t.Fatal(err)
	}
	v6 := netip.MustParseAddr("2001:db8::100")
	question, answer := probe(v6, hardware{}, everybody()).data, announcement(v6, hardware{})[0].data
	for name, c := range map[string]struct {
		data []byte
		want bool
	}{
		"solicitation": {question, true}, "advertisement": {answer, true}, "router": {replaced(question, 40, 133), false}, "UDP": {replaced(question, 6, 17), false}, "short": {question[:40], false},
	} {
		if n, err := vm.Run(c.data); err != nil || (n > 0) != c.want {
			t.Errorf("%s: %d bytes pass, %v", name, n, err)
		}
	}
}
