package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keptSettings are those of a cluster with a node.
func keptSettings(dir string) Settings {
	s := Settings{
		Version: settingsVersion, Name: "a", DataDir: dir, BindAddress: "0.0.0.0", LogLevels: "1", Nodes: 1,
		APIServerArgs: []string{"anonymous-auth=false", "audit-policy-file=/p"}, Told: []string{"apiserver-arg"},
	}
	s.Complete(2, "host", "/bundle", "/home/config")
	return s
}

func TestSettingsAreKept(t *testing.T) {
	s := keptSettings(t.TempDir())
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	read, err := ReadSettings(s.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, read); diff != "" {
		t.Errorf("written and read again they differ:\n%s", diff)
	}
	if info, err := os.Stat(SettingsFile(s.DataDir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("their file is %v, %v: want mode 0600", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(s.DataDir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("writing leaves %v, %v", left, err)
	}
}

// What was chosen once stays, whatever would be chosen now.
func TestSettingsAreCompletedOnce(t *testing.T) {
	s := keptSettings(t.TempDir())
	s.Complete(5, "renamed", "/newer/bundle", "/other/config")
	if s.Slot != 2 || s.Ports != DefaultsOf("a", 2).Ports || s.NodeName != "host" || s.Kubeconfig != "/home/config" || s.ServiceCIDR != "10.98.0.0/16" {
		t.Errorf("completed again they are %+v", s)
	}
	if s.Bundle != "/newer/bundle" {
		t.Errorf("the bundle is %s, want the one of the program that runs now", s.Bundle)
	}
}

func TestSettingsThatAreNone(t *testing.T) {
	for name, content := range map[string]string{
		"damaged":                        "{",
		"version 2":                      `{"version":2}`,
		"newer version (json: unknown f": `{"version":1,"colour":"red"}`,
		"name: ../b":                     `{"version":1,"name":"../b"}`,
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
		{"nothing given", Settings{Name: "a", BindAddress: "1.2.3.4"}, nil, nil},
		{"the same value", Settings{BindAddress: "0.0.0.0"}, []string{"bind-address"}, nil},
		{"another address", Settings{BindAddress: "127.0.0.1"}, []string{"bind-address"}, []string{"--bind-address: 0.0.0.0 → 127.0.0.1"}},
		{"another port", Settings{Ports: Ports{Secure: 7443}}, []string{"secure-port"}, []string{"--secure-port: 6445 → 7443"}},
		{"other Services", Settings{ServiceCIDR: "10.1.0.0/16"}, []string{"service-cidr"}, []string{"!--service-cidr: 10.98.0.0/16 → 10.1.0.0/16"}},
		{"other pods", Settings{ClusterCIDR: "10.1.0.0/16"}, []string{"cluster-cidr"}, []string{"!--cluster-cidr: 10.242.0.0/16 → 10.1.0.0/16"}},
		{"no node any more", Settings{Nodes: 0}, []string{"nodes"}, []string{"!--nodes: 1 → 0"}},
		{"another node", Settings{NodeName: "b"}, []string{"node-name"}, []string{"!--node-name: host → b"}},
		{"another store", Settings{EtcdServers: []string{"https://e:2379"}}, []string{"etcd-servers"}, []string{"!--etcd-servers: (nothing) → https://e:2379"}},
		{"one more argument", Settings{APIServerArgs: []string{"v=2"}}, []string{"apiserver-arg"}, []string{"--apiserver-arg=v: (nothing) → 2"}},
		{"an argument again", Settings{APIServerArgs: []string{"anonymous-auth=false"}}, []string{"apiserver-arg"}, nil},
		{"an argument changed", Settings{APIServerArgs: []string{"--anonymous-auth"}}, []string{"apiserver-arg"}, []string{"--apiserver-arg=anonymous-auth: false → true"}},
		{"an argument taken away", Settings{APIServerArgs: []string{"anonymous-auth-"}}, []string{"apiserver-arg"}, []string{"--apiserver-arg=anonymous-auth: false → (nothing)"}},
		{"another prefix", Settings{APIServerArgs: []string{"etcd-prefix=/x"}}, []string{"apiserver-arg"}, []string{"!--apiserver-arg=etcd-prefix: (nothing) → /x"}},
		{"a member of several", Settings{EtcdArgs: []string{"initial-cluster=a=https://a"}}, []string{"etcd-arg"}, []string{"!--etcd-arg=initial-cluster: (nothing) → a=https://a"}},
	} {
		kept := keptSettings("/data")
		now, changes := kept.With(tt.told, tt.given)
		var got []string
		for _, c := range changes {
			text := c.String()
			if c.Refused != "" {
				text = "!" + text
			}
			got = append(got, text)
		}
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

// An argument that is given leaves those of other names.
func TestArgumentsOfOthersStay(t *testing.T) {
	kept := keptSettings("/data")
	now, _ := kept.With(Settings{APIServerArgs: []string{"audit-policy-file=/q", "v=3"}}, []string{"apiserver-arg"})
	want := []string{"anonymous-auth=false", "audit-policy-file=/q", "v=3"}
	if diff := cmp.Diff(want, now.APIServerArgs); diff != "" {
		t.Error(diff)
	}
}

// A cluster of a version that kept no settings goes on as its record says.
func TestSettingsOfARecord(t *testing.T) {
	s, err := SettingsOf(Record{
		Name: "a", Slot: 3, DataDir: t.TempDir(), Kubeconfig: "/c", BundleDir: "/b", Server: "https://127.0.0.1:7000",
		ServiceCIDR: "10.1.0.0/16", ClusterCIDR: "10.2.0.0/16", CgroupRoot: "/coracle-a", ControlOnly: true,
	})
	if err == nil {
		err = s.Write()
	}
	if err != nil || s.Nodes != 0 || s.Slot != 3 || s.Ports.Secure != 7000 || s.ServiceCIDR != "10.1.0.0/16" || s.BindAddress != "0.0.0.0" {
		t.Errorf("%+v, %v", s, err)
	}
}
