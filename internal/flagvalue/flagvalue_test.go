package flagvalue

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// flags returns one flag of each kind, called by its kind, and some without.
func flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, kind := range []Kind{Path, File, KeyPair, Absolute, Address, Ranges, Name, URL, Socket, Host, Header, Quantity, Table, Limit, Listen, Interface, NodePorts, Number} {
		fs.String(string(kind), "", "")
		Is(fs, kind, string(kind))
	}
	fs.StringSlice("sysctl", nil, "")
	Is(fs, Sysctl, "sysctl")
	fs.String("mode", "", "")
	OneOf(fs, "mode", "batch", "blocking")
	fs.Int("secure-port", 0, "")
	fs.Int("workers", 0, "")
	fs.Duration("period", 0, "")
	fs.Float32("qps", 0, "")
	fs.String("text", "", "")
	fs.String("cert-dir", "", "")
	Is(fs, Path, "cert-dir")
	return fs
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "there")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		good, bad string
	}{
		{"--path=" + missing, ""},
		{"--file=" + file, "--file=" + missing},
		{"--file=", ""},
		{"--absolute=/pods", "--absolute=pods"},
		{"--address=::1", "--address=localhost"},
		{"--ranges=10.0.0.0/8,fd00::/64", "--ranges=10.0.0.0"},
		{"--name=node-1.example.com", "--name=Node_1"},
		{"--url=https://10.0.0.1:2379", "--url=10.0.0.1"},
		{"--socket=unix:///run/cri.sock", "--socket=/run/cri.sock"},
		{"--host=api.example.com:6443", "--host=a:b:c"},
		{"--header=X-Remote-User", "--header=X Remote"},
		{"--quantity=10Mi", "--quantity=10 megabytes"},
		{"--sysctl=kernel.msgmax,net.*", "--sysctl=kernel.msgmax,no sysctl"},
		{"--table=coracle-a", "--table=a;b"},
		{"--limit=-1", "--limit=-2"},
		{"--listen=0.0.0.0:10256", "--listen=localhost:10256"},
		{"--listen=::1", "--listen=10.0.0.1:65536"},
		{"--listen=", "--listen=:10256"},
		{"--interface=cni0", "--interface=a/b"},
		{"--interface=fifteen-letters", "--interface=sixteen--letters"},
		{"--nodePorts=192.0.2.0/24", "--nodePorts=192.0.2.0"},
		{"--nodePorts=primary", "--nodePorts=primary,all"},
		{"--number=-5", ""},
		{"--mode=batch", "--mode=fast"},
		{"--secure-port=65535", "--secure-port=65536"},
		{"--workers=0", "--workers=-1"},
		{"--period=1s", "--period=-1s"},
		{"--qps=0.5", "--qps=-0.5"},
		{"--text=anything", ""},
	} {
		if err := check(t, c.good); err != nil {
			t.Errorf("%s: %v", c.good, err)
		}
		if c.bad != "" && check(t, c.bad) == nil {
			t.Errorf("%s: no error", c.bad)
		}
	}
	if err := check(t, "--file="+missing, "--cert-dir="+dir); err != nil {
		t.Errorf("a missing file in --cert-dir, which is created: %v", err)
	}
}

func check(t *testing.T, args ...string) error {
	t.Helper()
	fs := flags()
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Check(fs)
}

func TestAbsolutePath(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	fs := flags()
	for _, c := range []struct{ flag, value, want string }{
		{"path", "a", here + "/a"},
		{"path", "/a", "/a"},
		{"path", "-", "-"},
		{"path", "", ""},
		{"file", "b/../a", here + "/a"},
		{"keyPair", "c,k:*.example.com", here + "/c," + here + "/k:*.example.com"},
		{"absolute", "a", "a"},
		{"text", "a", "a"},
	} {
		if got, err := AbsolutePath(fs.Lookup(c.flag), "", c.value); err != nil || got != c.want {
			t.Errorf("--%s=%s: %s, %v, want %s", c.flag, c.value, got, err, c.want)
		}
	}
}
