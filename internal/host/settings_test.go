package host

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/cluster"
)

// keptSettings returns the settings of a cluster with a node.
func keptSettings(dir string) Settings {
	s := Settings{Version: settingsVersion, Nodes: 1, SetFlags: []string{"apiserver-arg"}, Options: cluster.Options{
		Name: "a", DataDir: dir, BindAddress: "0.0.0.0", LogLevels: "1", APIServerArgs: []string{"anonymous-auth=false", "audit-policy-file=/p"},
	}}
	s.Complete(2, "host", "/bundle", "/home/config")
	return s
}

func TestSettingsAreKept(t *testing.T) {
	s := keptSettings(t.TempDir())
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	read, err := ReadSettings(s.Options.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, read); diff != "" {
		t.Errorf("written and read again they differ:\n%s", diff)
	}
	if info, err := os.Stat(SettingsFile(s.Options.DataDir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("their file is %v, %v: want mode 0600", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(s.Options.DataDir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("writing leaves %v, %v", left, err)
	}
}

// A value that was chosen once is kept, even if another one would be chosen
// now.
func TestSettingsAreCompletedOnce(t *testing.T) {
	s := keptSettings(t.TempDir())
	s.Complete(5, "renamed", "/newer/bundle", "/other/config")
	if s.Slot != 2 || s.Options.Ports != DefaultsOf("a", 2).Ports || s.Options.NodeName != "host" || s.Kubeconfig != "/home/config" || s.Options.ServiceCIDR != "10.98.0.0/16" {
		t.Errorf("completed again they are %+v", s)
	}
	if s.Options.Node.BundleDir != "/newer/bundle" {
		t.Errorf("the bundle is %s, want the one of the program that runs now", s.Options.Node.BundleDir)
	}
}

// Each cluster of a machine has a port of its own for an encrypted network, which it
// cannot begin or end to have later. Others have no such port.
func TestEncryptionStays(t *testing.T) {
	plain := keptSettings(t.TempDir())
	encrypted := Settings{Nodes: 1, Options: cluster.Options{Name: "b", DataDir: t.TempDir(), Encrypt: true}}
	for range 2 {
		encrypted.Complete(3, "host", "/bundle", "/home/config")
	}
	if plain.Options.Ports.WireGuard != 0 || encrypted.Options.Ports.WireGuard != 51823 {
		t.Errorf("the ports are %d and %d, want none and 51823", plain.Options.Ports.WireGuard, encrypted.Options.Ports.WireGuard)
	}
	for _, c := range []struct {
		kept, given Settings
		want        []string
	}{
		{plain, encrypted, []string{"!--encrypt: false → true"}}, {encrypted, plain, []string{"!--encrypt: true → false"}}, {encrypted, encrypted, nil},
	} {
		if _, changes := c.kept.With(c.given, []string{"encrypt"}); !slices.Equal(textsOfChanges(changes), c.want) {
			t.Errorf("changes %q, want %q", textsOfChanges(changes), c.want)
		}
	}
}

// A range of one family that an earlier version has chosen for nodes becomes one of each
// family of the pods. A user's stays.
func TestRangesOfNodesGetFamilies(t *testing.T) {
	for set, want := range map[string]string{"": "10.212.2.0/24,fd00:10:212:2::/64", "node-cidr": "10.212.2.0/24"} {
		s := Settings{Nodes: 1, SetFlags: []string{set}, Options: cluster.Options{Name: "a", DataDir: t.TempDir(), ClusterCIDR: "10.244.0.0/16,fd00::/48", Node: &cluster.NodeOptions{CIDR: "10.212.2.0/24"}}}
		for range 2 {
			if s.Complete(2, "host", "/bundle", "/home/config"); s.Options.Node.CIDR != want {
				t.Errorf("with the flag %q the range is %s, want %s", set, s.Options.Node.CIDR, want)
			}
		}
	}
}

func TestSettingsThatAreNone(t *testing.T) {
	for name, content := range map[string]string{
		"damaged":                        "{",
		"version 3":                      `{"version":3}`,
		"newer version (json: unknown f": `{"version":2,"options":{"colour":"red"}}`,
		"written by a newer version":     `{"version":1,"colour":"red"}`,
		"name: ../b":                     `{"version":2,"options":{"name":"../b"}}`,
		"options.name: ../c":             `{"version":1,"name":"../c"}`,
		"larger":                         strings.Repeat(" ", maxSettings+1),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(SettingsFile(dir), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadSettings(dir)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%.30s: %v, want an error with %q", content, err, name)
		}
		if damaged := name == "damaged"; err != nil && strings.Contains(err.Error(), "coracle down --data-dir="+dir) != damaged {
			t.Errorf("%.30s: %v", content, err)
		}
	}
	if _, err := ReadSettings(t.TempDir()); !errors.Is(err, ErrNoSettings) {
		t.Errorf("an empty directory: %v, want ErrNoSettings", err)
	}
	dir := t.TempDir()
	if err := os.Symlink("/dev/zero", SettingsFile(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSettings(dir); err == nil {
		t.Error("a link is read")
	}
}

func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		what  string
		told  Settings
		given []string
		want  []string // with ! in front of what is refused
	}{
		{"nothing given", Settings{Options: cluster.Options{Name: "a", BindAddress: "1.2.3.4"}}, nil, nil},
		{"the same value", Settings{Options: cluster.Options{BindAddress: "0.0.0.0"}}, []string{"bind-address"}, nil},
		{"another address", Settings{Options: cluster.Options{BindAddress: "127.0.0.1"}}, []string{"bind-address"}, []string{"--bind-address: 0.0.0.0 → 127.0.0.1"}},
		{"another port", Settings{Options: cluster.Options{Ports: cluster.Ports{Secure: 7443}}}, []string{"secure-port"}, []string{"--secure-port: 6445 → 7443"}},
		{"other Services", Settings{Options: cluster.Options{ServiceCIDR: "10.1.0.0/16"}}, []string{"service-cidr"}, []string{"!--service-cidr: 10.98.0.0/16 → 10.1.0.0/16"}},
		{"other pods", Settings{Options: cluster.Options{ClusterCIDR: "10.1.0.0/16"}}, []string{"cluster-cidr"}, []string{"!--cluster-cidr: 10.242.0.0/16 → 10.1.0.0/16"}},
		{"no node any more", Settings{Nodes: 0}, []string{"nodes"}, []string{"!--nodes: 1 → 0"}},
		{"another node", Settings{Options: cluster.Options{NodeName: "b"}}, []string{"node-name"}, []string{"!--node-name: host → b"}},
		{"another store", Settings{Options: cluster.Options{Etcd: &cluster.EtcdOptions{Servers: []string{"https://e:2379"}}}}, []string{"etcd-servers"}, []string{"!--etcd-servers: (nothing) → https://e:2379"}},
		{"one more argument", Settings{Options: cluster.Options{APIServerArgs: []string{"v=2"}}}, []string{"apiserver-arg"}, []string{"--apiserver-arg=v: (nothing) → 2"}},
		{"an argument again", Settings{Options: cluster.Options{APIServerArgs: []string{"anonymous-auth=false"}}}, []string{"apiserver-arg"}, nil},
		{"an argument changed", Settings{Options: cluster.Options{APIServerArgs: []string{"--anonymous-auth"}}}, []string{"apiserver-arg"}, []string{"--apiserver-arg=anonymous-auth: false → true"}},
		{"an argument taken away", Settings{Options: cluster.Options{APIServerArgs: []string{"anonymous-auth-"}}}, []string{"apiserver-arg"}, []string{"--apiserver-arg=anonymous-auth: false → (nothing)"}},
		{"an argument with dashes taken away", Settings{Options: cluster.Options{APIServerArgs: []string{"--anonymous-auth-"}}}, []string{"apiserver-arg"}, []string{"--apiserver-arg=anonymous-auth: false → (nothing)"}},
		{"another prefix", Settings{Options: cluster.Options{APIServerArgs: []string{"etcd-prefix=/x"}}}, []string{"apiserver-arg"}, []string{"!--apiserver-arg=etcd-prefix: (nothing) → /x"}},
		{"a member of several", Settings{Options: cluster.Options{EtcdArgs: []string{"initial-cluster=a=https://a"}}}, []string{"etcd-arg"}, []string{"!--etcd-arg=initial-cluster: (nothing) → a=https://a"}},
	} {
		kept := keptSettings("/data")
		now, changes := kept.With(tt.told, tt.given)
		got := textsOfChanges(changes)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s:\n%s", tt.what, diff)
		}
		if again, changes := now.With(tt.told, tt.given); len(changes) > 0 && !strings.HasSuffix(tt.what, "away") {
			t.Errorf("%s: given again they change %v in %+v", tt.what, changes, again)
		}
		if diff := cmp.Diff(keptSettings("/data"), kept); diff != "" {
			t.Errorf("%s: the kept settings themselves changed:\n%s", tt.what, diff)
		}
	}
}

// An argument that is given leaves arguments with other names as they are.
func TestArgumentsOfOthersStay(t *testing.T) {
	kept := keptSettings("/data")
	now, _ := kept.With(Settings{Options: cluster.Options{APIServerArgs: []string{"audit-policy-file=/q", "v=3"}}}, []string{"apiserver-arg"})
	want := []string{"anonymous-auth=false", "audit-policy-file=/q", "v=3"}
	if diff := cmp.Diff(want, now.Options.APIServerArgs); diff != "" {
		t.Error(diff)
	}
}

// TestSettingsOfARecord starts a cluster of a version that stored no settings: it
// goes on as its record says.
func TestSettingsOfARecord(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "coracle"))
	if err := os.MkdirAll(r.Folder(), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	flat := `{
  "name": "a", "slot": 3, "dataDir": "` + dir + `", "kubeconfig": "/c", "merged": {}, "pid": 12, "pidStart": 18446744073709551615,
  "server": "https://127.0.0.1:7000", "nftTable": "coracle-a", "cgroupRoot": "/coracle-a", "externalCRI": "unix:///c.sock", "cniConfDir": "/cni",
  "serviceCIDR": "10.1.0.0/16", "clusterCIDR": "10.2.0.0/16", "nodePorts": "28500-28999", "bundleDir": "/b", "started": "2026-01-02T03:04:05Z",
  "binaryVersion": "v1", "etcdServers": ["https://e:2379"], "controlOnly": true
}`
	if err := os.WriteFile(r.path("a"), []byte(flat), 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := r.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	want := Record{Slot: 3, Kubeconfig: "/c", PID: 12, PIDStart: math.MaxUint64, Server: "https://127.0.0.1:7000", BinaryVersion: "v1",
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Occupied: Occupied{
			Name: "a", DataDir: dir, ServiceCIDR: "10.1.0.0/16", ClusterCIDR: "10.2.0.0/16", NodePorts: "28500-28999", Ports: cluster.Ports{Secure: 7000},
			Etcd: Etcd{Servers: []string{"https://e:2379"}},
			Node: cluster.NodeOptions{
				BundleDir: "/b", ContainerRuntimeEndpoint: "unix:///c.sock", CNIConfDir: "/cni", NFTable: "coracle-a", CgroupRoot: "/coracle-a",
			},
		}}
	if diff := cmp.Diff(want, rec); diff != "" {
		t.Errorf("the record is read as (-want +got):\n%s", diff)
	}
	s, err := r.SettingsOf("a")
	if err == nil {
		err = s.Write()
	}
	if err != nil || s.Nodes != 0 || s.Slot != 3 || s.Options.Ports.Secure != 7000 || s.Options.Ports.Manager != 10317 || s.Options.ServiceCIDR != "10.1.0.0/16" || s.Options.BindAddress != "0.0.0.0" || s.Options.LogLevels != "1" {
		t.Errorf("%+v, %v", s, err)
	}
}

// Logins for registries are in the settings, and nowhere else.
func TestLoginsStayInTheSettings(t *testing.T) {
	const file = "configs: {a.example: {auth: {username: u, password: hidden}}}"
	s := Settings{Options: cluster.Options{Name: "a", Node: &cluster.NodeOptions{Registries: file}}}
	if got := s.Occupied().Node.Registries; got != "" {
		t.Errorf("the record has %q", got)
	}
	if got := s.Shown().Node.Registries; !strings.HasPrefix(got, "a.example (") || strings.Contains(got, "hidden") {
		t.Errorf("shown: %q", got)
	}
	if s.Options.Node.Registries != file {
		t.Errorf("Shown has changed the settings: %q", s.Options.Node.Registries)
	}
	other := s
	other.Options.Node = &cluster.NodeOptions{Registries: strings.Replace(file, "hidden", "new", 1)}
	_, changes := s.With(other, []string{"registries"})
	if len(changes) != 1 || changes[0].From == changes[0].To || strings.Contains(changes[0].String(), "hidden") || changes[0].Refused != "" {
		t.Errorf("changes %v", changes)
	}
}

// textsOfChanges returns changes as texts, which begin with ! if the change is refused.
func textsOfChanges(changes []Change) (texts []string) {
	for _, c := range changes {
		text := c.String()
		if c.Refused != "" {
			text = "!" + text
		}
		texts = append(texts, text)
	}
	return texts
}

// A member of etcd is there when etcd has found its place among the others, not when it
// has tried.
func TestHoldsMember(t *testing.T) {
	s := Settings{Options: cluster.Options{DataDir: t.TempDir(), EtcdArgs: []string{"initial-cluster=a=https://a"}}}
	for _, step := range []struct {
		dir  string
		want bool
	}{{"etcd", false}, {"etcd/member/snap", false}, {"etcd/member/wal", true}} {
		if err := os.MkdirAll(filepath.Join(s.Options.DataDir, step.dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := s.HoldsMember(); got != step.want {
			t.Errorf("with %s: %v", step.dir, got)
		}
	}
	s.Options.EtcdArgs = nil
	if s.HoldsMember() {
		t.Error("an etcd of its own is a member of several")
	}
}
