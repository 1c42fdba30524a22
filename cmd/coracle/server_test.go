package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/flagvalue"
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

// A connection to etcd needs nothing but the keys that were handed over.
func TestKeysForEtcd(t *testing.T) {
	from := t.TempDir()
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
	members, err := dialEtcd([]string{"https://127.0.0.1:1", "https://127.0.0.1:2"}, keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := members.Close(); err != nil {
		t.Error(err)
	}
	delete(keys, "etcd-ca.key")
	if _, err := dialEtcd([]string{"https://127.0.0.1:1"}, keys); err == nil || !strings.Contains(err.Error(), "etcd-ca.key") {
		t.Errorf("without the key of etcd's authority: %v", err)
	}
}

// A server that joins again takes its place among the members that there are now.
func TestPlaceOfAServerThatJoinsAgain(t *testing.T) {
	kept, f := host.NewSettings(), newUpFlags()
	kept.Options.EtcdArgs = []string{"name=b", "initial-cluster=a=https://192.0.2.1:2380,b=https://192.0.2.2:2380"}
	f.settings.Options.EtcdArgs = []string{"name=b", "initial-cluster=b=https://192.0.2.2:2380,c=https://192.0.2.3:2380"}
	if err := f.setMember(&kept, false); err != nil || flagvalue.Last(kept.Options.EtcdArgs, "initial-cluster") != "a=https://192.0.2.1:2380,b=https://192.0.2.2:2380" {
		t.Errorf("without a join: %q, %v", kept.Options.EtcdArgs, err)
	}
	f.keys = func(host.Record) error { return nil }
	if err := f.setMember(&kept, false); err != nil || !slices.Equal(kept.Options.EtcdArgs, f.settings.Options.EtcdArgs) {
		t.Errorf("the arguments are %q, %v", kept.Options.EtcdArgs, err)
	}
}

// Who removes one of several servers without leaving is told how the others forget it.
func TestServersLeftBehind(t *testing.T) {
	for _, c := range []struct {
		arguments []string
		member    bool
		want      string
	}{
		{nil, true, ""},
		{[]string{"name=b", "initial-advertise-peer-urls=https://192.0.2.2:2380", "initial-cluster=b=https://192.0.2.2:2380"}, false, ""},
		{[]string{"name=b", "initial-advertise-peer-urls=https://192.0.2.2:2380", "initial-cluster=b=https://192.0.2.2:2380"}, true, "member remove ID (of the one called b)\n  coracle kubectl delete node beta\n"},
		{[]string{"initial-cluster=b=https://192.0.2.2:2380", "initial-cluster-state=existing"}, false, "(of the one called coracle)"},
	} {
		s := host.NewSettings()
		s.Options.Name, s.Options.DataDir, s.Options.NodeName, s.Options.EtcdArgs = "a", t.TempDir(), "beta", c.arguments
		s.Complete(0, "n", "/bundle", "/root/.kube/config")
		if err := s.Write(); err != nil {
			t.Fatal(err)
		}
		if c.member {
			if err := os.MkdirAll(filepath.Join(s.Options.DataDir, "etcd", "member", "wal"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		got := leftBehind(t.Context(), host.Record{Occupied: s.Occupied()})
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%q, member %v: %q, want %q", c.arguments, c.member, got, c.want)
		}
	}
}

// A server that leaves asks the others, and is not among the members that servers which
// join ask then.
func TestOthersOfAServer(t *testing.T) {
	s := host.NewSettings()
	s.Options.DataDir, s.Options.EtcdArgs = t.TempDir(), []string{"listen-client-urls=https://192.0.2.1:2379"}
	rec := host.Record{Occupied: host.Occupied{DataDir: s.Options.DataDir}}
	for _, c := range []struct{ etcd, want, fails string }{
		{"", "", ""},
		{"https://192.0.2.1:2379", "https://192.0.2.1:2379", ""},
		{"https://192.0.2.1:2379,https://192.0.2.2:2379", "https://192.0.2.2:2379", "etcd-ca.crt"}, // which the others would verify
	} {
		network := nodejoin.Network{Etcd: c.etcd}
		members, err := dialOthers(rec, s, &network)
		if err == nil {
			err = members.Close()
		}
		if network.Etcd != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: %q, %v", c.etcd, network.Etcd, err)
		}
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
