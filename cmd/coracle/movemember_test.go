package main

import (
	"net"
	"slices"
	"testing"

	"github.com/coracle-io/coracle/cluster"
)

// The URLs of a member of etcd at a lost address get the next one, and others stay.
func TestMovedMember(t *testing.T) {
	arguments := []string{
		"name=b", "--initial-advertise-peer-urls=https://192.0.2.1:2380", "listen-client-urls=https://192.0.2.1:2379",
		"initial-cluster=a=https://192.0.2.11:2380,b=https://192.0.2.1:2380", "initial-cluster-state=existing", "quota-backend-bytes=1",
	}
	before := slices.Clone(arguments)
	for to, want := range map[string][]string{
		"198.51.100.7": {
			"name=b", "--initial-advertise-peer-urls=https://198.51.100.7:2380", "listen-client-urls=https://198.51.100.7:2379",
			"initial-cluster=a=https://192.0.2.11:2380,b=https://198.51.100.7:2380", "initial-cluster-state=existing", "quota-backend-bytes=1",
		},
		"2001:db8::7": {
			"name=b", "--initial-advertise-peer-urls=https://[2001:db8::7]:2380", "listen-client-urls=https://[2001:db8::7]:2379",
			"initial-cluster=a=https://192.0.2.11:2380,b=https://[2001:db8::7]:2380", "initial-cluster-state=existing", "quota-backend-bytes=1",
		},
	} {
		moved := movedMember(arguments, []net.IP{net.IPv4(192, 0, 2, 1)}, net.ParseIP(to))
		if !slices.Equal(moved, want) || !slices.Equal(arguments, before) {
			t.Errorf("to %s: %q from %q", to, moved, arguments)
		}
		if back := movedMember(moved, []net.IP{net.ParseIP(to)}, net.IPv4(192, 0, 2, 1)); !slices.Equal(back, before) {
			t.Errorf("from %s: %q", to, back)
		}
	}
}

// A member that is started with --several-servers again moves only if the machine does not
// have its address.
func TestFindMember(t *testing.T) {
	member := func(address string) *cluster.Options {
		arguments, peerURL := memberAt("a", net.ParseIP(address), 0)
		return &cluster.Options{AdvertiseAddress: net.IPv4(198, 51, 100, 7), EtcdArgs: append(arguments, "initial-cluster=a="+peerURL)}
	}
	for at, want := range map[string]string{
		"192.0.2.1":    "198.51.100.7",
		"2001:db8::1":  "198.51.100.7",
		"127.0.0.1":    "127.0.0.1",
		"127.0.0.7":    "127.0.0.7",
		"0.0.0.0":      "0.0.0.0",
		"198.51.100.7": "198.51.100.7", // which another machine translates
	} {
		o := member(at)
		if err := findMember(o); err != nil || !slices.Equal(o.EtcdArgs, member(want).EtcdArgs) {
			t.Errorf("a member at %s: %q, %v", at, o.EtcdArgs, err)
		}
	}
	apart := &cluster.Options{AdvertiseAddress: net.IPv4(198, 51, 100, 7), EtcdArgs: []string{"initial-advertise-peer-urls=https://127.0.0.1:2380", "listen-client-urls=https://192.0.2.1:2379"}}
	if err := findMember(apart); err != nil || !slices.Equal(apart.EtcdArgs, []string{"initial-advertise-peer-urls=https://127.0.0.1:2380", "listen-client-urls=https://198.51.100.7:2379"}) {
		t.Errorf("a member that has lost one of its addresses: %q, %v", apart.EtcdArgs, err)
	}
	named := &cluster.Options{EtcdArgs: []string{"initial-advertise-peer-urls=https://a.example:2380", "listen-client-urls=https://a.example:2379"}}
	if err := findMember(named); err != nil || named.EtcdArgs[0] != "initial-advertise-peer-urls=https://a.example:2380" {
		t.Errorf("a member with a name: %q, %v", named.EtcdArgs, err)
	}
}
