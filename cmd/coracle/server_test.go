package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodejoin"
	"github.com/coracle-io/coracle/internal/pki"
)

// A new cluster listens for other servers at its address, with ports of its slot. One
// that is there stays as it is.
func TestListenForServers(t *testing.T) {
	settings := func(change func(*cluster.Options)) host.Settings {
		s := host.NewSettings()
		s.Options.NodeName, s.Options.AdvertiseAddress, s.Slot = "alpha", net.ParseIP("2001:db8::1"), 2
		change(&s.Options)
		return s
	}
	s := settings(func(*cluster.Options) {})
	for _, isNew := range []bool{true, false} {
		if err := listenForServers(&s, isNew); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"name=alpha", "initial-advertise-peer-urls=https://[2001:db8::1]:2420", "listen-client-urls=https://[2001:db8::1]:2419", "initial-cluster=alpha=https://[2001:db8::1]:2420",
		}
		if !slices.Equal(s.Options.EtcdArgs, want) || !isMember(s.Options) {
			t.Errorf("the arguments of etcd are %q, want %q", s.Options.EtcdArgs, want)
		}
	}
	for want, c := range map[string]struct {
		change func(*cluster.Options)
		isNew  bool
	}{
		"is there, and its etcd has one member":      {func(*cluster.Options) {}, false},
		"leave --etcd-servers and --etcd-arg out":    {func(o *cluster.Options) { o.EtcdArgs = []string{"quota-backend-bytes=1"} }, true},
		"--several-servers sets the etcd of the clu": {func(o *cluster.Options) { o.Etcd.Servers = []string{"https://192.0.2.1:2379"} }, true},
	} {
		s := settings(c.change)
		if err := listenForServers(&s, c.isNew); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	chosen := settings(func(o *cluster.Options) { o.APIServerArgs = []string{"advertise-address=192.0.2.9"} })
	if address, err := addressOf(chosen.Options); err != nil || address.String() != "192.0.2.9" {
		t.Errorf("the address is %s, %v", address, err)
	}
}

// What etcd asks for is signed by the authority that was handed over, and its
// connection needs nothing else.
func TestKeysForEtcd(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	if err := cluster.Prepare(cluster.Options{
		DataDir: from, Etcd: &cluster.EtcdOptions{}, AdvertiseAddress: net.IPv4(127, 0, 0, 1),
		EtcdArgs: []string{"name=a", "initial-advertise-peer-urls=https://127.0.0.1:1", "initial-cluster=a=https://127.0.0.1:1", "listen-client-urls=https://127.0.0.1:2"},
	}); err != nil {
		t.Fatal(err)
	}
	keys := nodejoin.Keys{}
	for _, name := range pki.Shared() {
		keys[name] = []byte(read(t, filepath.Join(from, "pki"), name))
	}
	members, err := dialEtcd("https://127.0.0.1:1", keys, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = members.Close() }()
	if got, want := read(t, dir, "etcd-ca.crt"), read(t, filepath.Join(from, "pki"), "etcd-ca.crt"); got != want {
		t.Errorf("the authority is %s, want %s", got, want)
	}
	if !strings.Contains(read(t, dir, "etcd-client.crt"), "CERTIFICATE") {
		t.Error("there is no certificate")
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
