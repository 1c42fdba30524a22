// Package wireguard keeps an interface of WireGuard (https://www.wireguard.com/protocol):
// its key, which is made here and stays here, and its peers. Where the kernel has no
// WireGuard, this process encrypts in its place:
//
//	pods ── routes ── cov-NAME ─┬─ WireGuard of the kernel ─────────────── UDP ── others
//	                            └─ /dev/net/tun ── a Device's goroutines ── UDP ── others
package wireguard

import (
	"bytes"
	"encoding/base64"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Annotation is the annotation of a Node with its Identity. The node itself writes it.
const Annotation = "coracle.io/wireguard"

// Key is a public key (X25519, RFC 7748).
type Key [32]byte

// String returns the key as wg(8) shows it, in base64.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Identity is what others must know of a node, besides its address, to send it packets.
type Identity struct {
	Key  Key
	Port uint16 // UDP
}

// String returns KEY:PORT, which ParseIdentity reads.
func (i Identity) String() string { return i.Key.String() + ":" + strconv.Itoa(int(i.Port)) }

// ParseIdentity returns the identity in a text that String has returned, or the zero
// value.
func ParseIdentity(text string) Identity {
	key, port, _ := strings.Cut(text, ":")
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != len(Key{}) {
		return Identity{}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if i := (Identity{Key(raw), uint16(number)}); err == nil && i.Key != (Key{}) && i.Port != 0 {
		return i
	}
	return Identity{}
}

// Peer is another node.
type Peer struct {
	Key      Key
	Endpoint netip.AddrPort
	// AllowedIPs are ranges that no other peer has, masked and sorted: packets to them
	// go to this peer, and packets from them come from it alone.
	AllowedIPs []netip.Prefix
}

func (p Peer) equal(other Peer) bool {
	return p.Key == other.Key && p.Endpoint == other.Endpoint && slices.Equal(p.AllowedIPs, other.AllowedIPs)
}

// difference returns the keys of peers that an interface must forget, and the peers
// that it must add or change, to have those that are wanted.
func difference(have, want []Peer) (gone []Key, changed []Peer) {
	had := map[Key]Peer{}
	for _, p := range have {
		had[p.Key] = p
	}
	for _, p := range want {
		if is, known := had[p.Key]; !known || !is.equal(p) {
			changed = append(changed, p)
		}
		delete(had, p.Key)
	}
	return slices.SortedFunc(maps.Keys(had), func(a, b Key) int { return bytes.Compare(a[:], b[:]) }), changed
}
