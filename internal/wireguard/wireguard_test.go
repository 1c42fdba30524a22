package wireguard

import (
	"crypto/ecdh"
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// key returns a public key that consists of one byte.
func key(b byte) (k Key) {
	for i := range k {
		k[i] = b
	}
	return k
}

func peer(b byte, endpoint string, allowed ...string) Peer {
	p := Peer{Key: key(b), Endpoint: netip.MustParseAddrPort(endpoint)}
	for _, text := range allowed {
		p.AllowedIPs = append(p.AllowedIPs, netip.MustParsePrefix(text))
	}
	return p
}

func TestIdentity(t *testing.T) {
	i := Identity{key(7), 51820}
	if got := ParseIdentity(i.String()); got != i {
		t.Errorf("%s is read as %+v", i, got)
	}
	one := key(7).String()
	for _, text := range []string{
		"", ":", one, one + ":", one + ":0", one + ":65536", one + ":-1", one + ":51820:1", one[:40] + ":51820", "*" + one[1:] + ":51820", key(0).String() + ":51820",
		base64.StdEncoding.EncodeToString(make([]byte, 33)) + ":51820",
	} {
		if got := ParseIdentity(text); got != (Identity{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// TestLoadKey checks that a key is made once, and that others cannot read it.
func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node", "wireguard.key")
	var first *ecdh.PrivateKey
	for range 2 {
		loaded, err := LoadKey(path)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = loaded
		}
		if !loaded.Equal(first) {
			t.Error("another key was made")
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v: want mode 0600", info, err)
	}
	if got := New(first, 7, t.Logf).Identity(); got.Port != 7 || !slices.Equal(got.Key[:], first.PublicKey().Bytes()) {
		t.Errorf("the node publishes %+v", got)
	}
	for _, text := range []string{"", "key", base64.StdEncoding.EncodeToString(make([]byte, 31))} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), path+" has no private key of WireGuard") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDifference(t *testing.T) {
	a, b, c := peer(1, "192.0.2.1:1", "10.244.1.0/24"), peer(2, "192.0.2.2:1", "10.244.2.0/24", "fd00::/64"), peer(3, "[2001:db8::3]:1", "10.244.3.0/24")
	moved, wider := peer(1, "192.0.2.9:1", "10.244.1.0/24"), peer(1, "192.0.2.1:1", "10.244.1.0/24", "10.244.9.0/24")
	for name, test := range map[string]struct {
		have, want []Peer
		gone       []Key
		changed    []Peer
	}{
		"none":      {},
		"the same":  {have: []Peer{a, b}, want: []Peer{b, a}},
		"the first": {want: []Peer{a, b}, changed: []Peer{a, b}},
		"the last":  {have: []Peer{c, a}, gone: []Key{key(1), key(3)}},
		"one comes": {have: []Peer{a}, want: []Peer{a, c}, changed: []Peer{c}},
		"one moves": {have: []Peer{a, b}, want: []Peer{moved, b}, changed: []Peer{moved}},
		"ranges":    {have: []Peer{wider, b}, want: []Peer{a, b}, changed: []Peer{a}},
		"a new key": {have: []Peer{a, b}, want: []Peer{b, peer(4, "192.0.2.1:1", "10.244.1.0/24")}, gone: []Key{key(1)}, changed: []Peer{peer(4, "192.0.2.1:1", "10.244.1.0/24")}},
	} {
		gone, changed := difference(test.have, test.want)
		if !slices.Equal(gone, test.gone) || !slices.EqualFunc(changed, test.changed, Peer.equal) {
			t.Errorf("%s: gone are %v, changed %v; want %v and %v", name, gone, changed, test.gone, test.changed)
		}
	}
}

// TestMoved checks that a machine with other addresses gives all peers their endpoints
// again, and still removes those that are gone.
func TestMoved(t *testing.T) {
	a, b := peer(1, "192.0.2.1:1", "10.244.1.0/24"), peer(2, "192.0.2.2:1", "10.244.2.0/24")
	d := &Device{last: []Peer{a, b}, program: &program{peers: []Peer{a, b}}}
	d.Moved()
	for _, has := range [][]Peer{d.last, d.program.peers} {
		gone, set := difference(has, []Peer{a})
		if !slices.Equal(gone, []Key{b.Key}) || !slices.EqualFunc(set, []Peer{a}, Peer.equal) {
			t.Errorf("gone are %v, and %v are set", gone, set)
		}
	}
	new(Device).Moved() // before the first Apply
}

func TestConfiguration(t *testing.T) {
	hex := func(digits string) string { return strings.Repeat(digits, 32) }
	want := "public_key=" + hex("0a") + "\nremove=true\n" +
		"public_key=" + hex("03") + "\nendpoint=[2001:db8::3]:51820\nreplace_allowed_ips=true\nallowed_ip=10.244.3.0/24\nallowed_ip=fd00::/64\n"
	if got := configuration([]Key{key(10)}, []Peer{peer(3, "[2001:db8::3]:51820", "10.244.3.0/24", "fd00::/64")}); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
