package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodejoin"
)

func TestBadJoins(t *testing.T) {
	const good = "join api.example --name=test-bad-join --token=abcdef.0123456789abcdef --discovery-token-ca-cert-hash=sha256:1e06dc046c4c9e73c192f1217fa94c6d32540192c704d93001e30f0edb6c0e66"
	for _, c := range []struct{ line, want string }{
		{"join", "coracle: no argument: want coracle join HOST:PORT\n"},
		{"join api.example", "coracle: --token: want a token such as abcdef.0123456789abcdef\n"},
		{"join api.example --token=abcdef.0123456789abcdef", "coracle: --discovery-token-ca-cert-hash is missing: coracle token create prints it\n"},
		{strings.Replace(good, "api.example", "https://api.example", 1), "coracle: https://api.example: want a host and a port, such as api.example.com:6443\n"},
		{good + " --node-ip=here", "coracle: --node-ip=here: want an IP address of this machine\n"},
		{good + " --secure-port=7443", "coracle: --secure-port is for servers: give --control-plane with it\n"},
		{good + " --ingress=false", "coracle: --ingress is for servers: give --control-plane with it\n"},
		{good + " --certificate-key=" + strings.Repeat("a", 64), "coracle: --certificate-key is for servers: give --control-plane with it\n"},
		{good + " --control-plane --certificate-key=abc", "coracle: --certificate-key: want 64 hexadecimal digits: coracle token create --control-plane prints them\n"},
		{good + " --token-file=/no/such/file", "coracle: --token and --token-file: give one of them\n"},
		{"join api.example --token-file=/no/such/file", "coracle: --token-file: open /no/such/file: no such file or directory\n"},
		{good + " --certificate-key-file=/no/such/file", "coracle: --certificate-key-file is for servers: give --control-plane with it\n"},
		{good + " --control-plane --certificate-key-file=/no/such/file", "coracle: --certificate-key-file: open /no/such/file: no such file or directory\n"},
		{"leave --timeout=0s", "coracle: --timeout=0s: want a duration, such as 2m\n"},
	} {
		if _, got, code := execute(t, strings.Fields(c.line)...); got != c.want || code != exitFailed {
			t.Errorf("%s: code %d, %q, want %q", c.line, code, got, c.want)
		}
	}
}

// Secrets of a join may be in files, where other users of the machine do not see them.
func TestSecretsInFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	d := discovery{tokenFile: write("token", "abcdef.0123456789abcdef\n", 0o600), hashes: []string{"sha256:" + strings.Repeat("0", 64)}}
	if server, token, err := d.check("api.example"); err != nil || server != "https://api.example:6443" || token.String() != "abcdef.0123456789abcdef" {
		t.Errorf("%s %s %v", server, token, err)
	}
	f := &joinFlags{server: true, certificateKeyFile: write("key", strings.Repeat("2f", 32), 0o600)}
	if err := f.checkServer(); err != nil || f.certificateKey != strings.Repeat("2f", 32) {
		t.Errorf("%q %v", f.certificateKey, err)
	}
	d.tokenFile = write("shared", "abcdef.0123456789abcdef", 0o622)
	if _, _, err := d.check("api.example"); err == nil {
		t.Error("a token that others can write is taken")
	}
}

// The flags of a node become arguments of its kubelet, which a later join with the
// same flags does not change.
func TestJoinArguments(t *testing.T) {
	f := &joinFlags{up: newUpFlags(), labels: map[string]string{"place": "there", "disk": "fast"}, taints: []string{"a=b:NoSchedule", "c:NoExecute"}, nodeIPs: []string{"192.0.2.7", "2001:db8::7"}}
	if err := f.setArguments(); err != nil {
		t.Fatal(err)
	}
	o := f.up.settings.Options
	slices.Sort(o.KubeletArgs)
	want := []string{"node-ip=192.0.2.7,2001:db8::7", "node-labels=disk=fast,place=there", "register-with-taints=a=b:NoSchedule,c:NoExecute"}
	if !slices.Equal(o.KubeletArgs, want) || o.AdvertiseAddress.String() != "192.0.2.7" || !slices.Contains(f.up.set, "kubelet-arg") {
		t.Errorf("arguments %q, address %s, flags %q", o.KubeletArgs, o.AdvertiseAddress, f.up.set)
	}
	none := &joinFlags{up: newUpFlags()}
	if err := none.setArguments(); err != nil || len(none.up.settings.Options.KubeletArgs) > 0 || len(none.up.set) > 0 {
		t.Errorf("without flags: %q, %q, %v", none.up.settings.Options.KubeletArgs, none.up.set, err)
	}
}

// What an interrupted join has left serves another one to the same cluster alone, and not to
// one that took its place and encrypts.
func TestLeftOfJoin(t *testing.T) {
	joined := cluster.JoinedNode{Server: "https://api.example:6443", NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 64}
	plain := nodejoin.Network{ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16"}
	encrypted := plain
	encrypted.Encryption = nodejoin.WireGuard
	of := func(network nodejoin.Network) (rec host.Record) {
		rec.Node.Joined, rec.ServiceCIDR, rec.ClusterCIDR = new(joined), network.ServiceCIDR, network.ClusterCIDR
		if network.Encryption != "" {
			rec.Ports.WireGuard = 51821
		}
		return rec
	}
	other := plain
	other.ClusterCIDR = "10.245.0.0/16"
	for _, c := range []struct {
		rec     host.Record
		network nodejoin.Network
		want    bool
	}{
		{of(plain), plain, true}, {of(encrypted), encrypted, true}, {of(plain), encrypted, false}, {of(encrypted), plain, false}, {of(other), plain, false}, {host.Record{}, plain, false},
	} {
		if got := isLeftOf(c.rec, joined, c.network); got != c.want {
			t.Errorf("%+v is left of a join to %+v: %v", c.rec, c.network, got)
		}
	}
}

// token create prints what to run on another machine, if nodes can join with the
// token.
func TestLineOfToken(t *testing.T) {
	for _, c := range []struct {
		usages, groups []string
		want           string
		key            string
	}{
		{[]string{"signing", "authentication"}, []string{bootstraptoken.DefaultGroup}, "coracle join api.example:6443 --token=abcdef.0123456789abcdef --discovery-token-ca-cert-hash=sha256:1e\n", ""},
		{[]string{"signing", "authentication"}, []string{bootstraptoken.DefaultGroup}, "coracle join api.example:6443 --token=abcdef.0123456789abcdef --discovery-token-ca-cert-hash=sha256:1e --control-plane --certificate-key=2f\n", "2f"},
		{[]string{"signing"}, nil, "abcdef.0123456789abcdef\n", ""},
		{[]string{"signing", "authentication"}, []string{"system:bootstrappers:others"}, "abcdef.0123456789abcdef\n", ""},
	} {
		var out strings.Builder
		createdToken{tokenReport{Token: "abcdef.0123456789abcdef", Usages: c.usages, Groups: c.groups}, "https://api.example:6443", []string{"sha256:1e"}, c.key}.WriteText(&out)
		if out.String() != c.want {
			t.Errorf("%+v: %q, want %q", c, out.String(), c.want)
		}
	}
}
