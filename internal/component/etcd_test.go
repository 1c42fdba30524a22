package component

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/pki"
)

// etcdOf is an etcd with the arguments of up's --etcd-arg.
func etcdOf(t *testing.T, arguments ...string) *Etcd {
	t.Helper()
	e, fs := NewEtcd(t.TempDir()), pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	e.AddFlags(fs)
	if err := base.Set("etcd", fs, arguments); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEtcdRefusesTCPWithoutTLS(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"listen-client-urls=http://127.0.0.1:2379"},
		{"name=a", "initial-advertise-peer-urls=http://127.0.0.1:1", "initial-cluster=a=http://127.0.0.1:1"},
		{"name=a", "initial-advertise-peer-urls=https://127.0.0.1:1", "initial-cluster=a=https://127.0.0.1:1,b=http://127.0.0.1:2"},
		{"listen-client-urls=unix:///tmp/open.sock"},
		{"listen-client-urls=https://127.0.0.1:2379", "trusted-ca-file=" + ca},
		{"listen-client-urls=https://127.0.0.1:2379", "name=../../ca"},
	} {
		err := etcdOf(t, arguments...).Validate()
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want one line that says what to do", arguments, err)
		}
	}
}

// An etcd that listens on TCP without given certificates gets certificates of the
// cluster's authority for etcd, which signs no others.
func TestEtcdUsesKeysOfTheCluster(t *testing.T) {
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	alone := etcdOf(t)
	if err := alone.UseKeys(keys); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(keys.File("etcd-ca.key")); !os.IsNotExist(err) {
		t.Errorf("an etcd that does not listen on TCP has an authority: %v", err)
	}
	e := etcdOf(t, "name=m1", "listen-client-urls=https://127.0.0.1:2379",
		"initial-advertise-peer-urls=https://10.0.0.1:2380", "initial-cluster=m1=https://10.0.0.1:2380")
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := e.UseKeys(keys); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{e.ClientTLS.CA, e.ClientTLS.Cert, e.ClientTLS.Key, e.PeerTLS.CA, e.PeerTLS.Cert, e.PeerTLS.Key, keys.File("etcd-client.key")} {
		if info, err := os.Stat(file); err != nil || strings.HasSuffix(file, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if e.ClientTLS.CA != keys.File("etcd-ca.crt") {
		t.Errorf("clients are asked for certificates of %s", e.ClientTLS.CA)
	}
	if !e.PeersAnywhere {
		t.Error("a member with several addresses is not accepted")
	}
	given := filepath.Join(t.TempDir(), "given.pem")
	if err := os.WriteFile(given, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	others := etcdOf(t, "name=m1", "peer-trusted-ca-file="+given, "peer-cert-file="+given, "peer-key-file="+given,
		"initial-advertise-peer-urls=https://10.0.0.1:2380", "initial-cluster=m1=https://10.0.0.1:2380")
	if err := others.UseKeys(keys); err != nil || others.PeersAnywhere || others.PeerTLS.CA != given {
		t.Errorf("with another authority: certificates of %s, from any address: %v, %v", others.PeerTLS.CA, others.PeersAnywhere, err)
	}
}
