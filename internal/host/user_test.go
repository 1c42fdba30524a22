package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

func TestDirectoriesOfUsers(t *testing.T) {
	const uid = 1000
	for _, test := range []struct {
		uid         int
		environment map[string]string
		home        string
		root, run   string
	}{
		{0, map[string]string{"HOME": "/root", "XDG_DATA_HOME": "/data"}, "/root", "/var/lib/coracle", "/run/coracle/dev"},
		{uid, map[string]string{"HOME": "/home/u"}, "/elsewhere", "/home/u/.local/share/coracle", "/home/u/.local/state/coracle/run/dev"},
		{uid, map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data", "XDG_STATE_HOME": "/state"}, "", "/data/coracle", "/state/coracle/run/dev"},
		{uid, map[string]string{"XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state"}, "/home/u", "/home/u/.local/share/coracle", "/home/u/.local/state/coracle/run/dev"},
		{uid, nil, "", "/.local/share/coracle", "/.local/state/coracle/run/dev"},
	} {
		o := owner{test.uid, func(name string) string { return test.environment[name] }, func() string { return test.home }}
		if o.root() != test.root || o.runDir("dev") != test.run {
			t.Errorf("user %d with %v: data in %s and sockets in %s, want %s and %s", test.uid, test.environment, o.root(), o.runDir("dev"), test.root, test.run)
		}
	}
}

// Other users can neither write to a directory of sockets nor replace it.
func TestRunDirectoriesAreTheUsers(t *testing.T) {
	state := t.TempDir()
	dir := filepath.Join(state, "coracle", "run", "dev")
	for range 2 {
		if err := MakeRunDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, open := range []string{dir, filepath.Dir(dir), filepath.Join(state, "coracle")} {
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
		var shared *sharedfile.OwnershipError
		if err := MakeRunDir(dir); !errors.As(err, &shared) || shared.Path != open {
			t.Errorf("%s is open to others: %v", open, err)
		}
		if err := os.Chmod(open, 0o711); err != nil {
			t.Fatal(err)
		}
	}
}

// The environment of a later command does not move the sockets of a cluster.
func TestRunDirectoryOfAClusterStays(t *testing.T) {
	s := NewSettings()
	s.Options.Name, s.RunDir = "dev", "/home/a/state/coracle/run/dev"
	s.Complete(0, "node", "bundle", "config")
	if rec := NewRecord(s, Record{}); rec.RunDirectory() != s.RunDir || s.ClusterOptions().Etcd.Socket != s.RunDir+"/etcd/etcd.sock" {
		t.Errorf("sockets in %s, etcd's at %s", rec.RunDirectory(), s.ClusterOptions().Etcd.Socket)
	}
	s.RunDir = "" // as earlier versions stored it
	if rec := NewRecord(s, Record{}); rec.RunDirectory() != RunDir("dev") {
		t.Errorf("sockets in %s, want those of the environment", rec.RunDirectory())
	}
}
