package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Settings that other users can write are not trusted: root would end and
// remove whatever it names.
func TestSettingsOfOthersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files to others needs root")
	}
	for what, change := range map[string]func(dir string) error{
		"the settings belong to another":  func(dir string) error { return os.Chown(SettingsFile(dir), stranger, stranger) },
		"the directory does":              func(dir string) error { return os.Chown(dir, stranger, stranger) },
		"others can write the settings":   func(dir string) error { return os.Chmod(SettingsFile(dir), 0o622) },
		"others can write the directory":  func(dir string) error { return os.Chmod(dir, 0o777) },
		"a group can write the directory": func(dir string) error { return os.Chmod(dir, 0o770) },
	} {
		dir := filepath.Join(t.TempDir(), "data")
		clusterIn(t, dir, "a")
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		var foreign *sharedfile.OwnershipError
		if _, err := ReadSettings(dir); !errors.As(err, &foreign) || !strings.Contains(err.Error(), "chmod") && !strings.Contains(err.Error(), "chown") {
			t.Errorf("%s: %v", what, err)
		}
		if c, err := ClaimDir(t.Context(), dir, "a", false); err == nil {
			t.Errorf("%s: claimed %+v", what, c)
		}
	}
}

// Keys and registries that others put into an open directory are not taken for
// the user's own.
func TestClaimRefusesWhatOthersPutThere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files to others needs root")
	}
	for what, change := range map[string]func(dir string) error{
		"an open directory": func(dir string) error { return os.Chmod(dir, 0o777) },
		"keys of another":   func(dir string) error { return os.Chown(filepath.Join(dir, "pki"), stranger, stranger) },
		"registries":        func(dir string) error { return os.Chown(filepath.Join(dir, "registries"), stranger, stranger) },
	} {
		dir := filepath.Join(t.TempDir(), "data")
		files(t, dir, "pki/ca.key", "registries/docker.io/hosts.toml")
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if c, err := ClaimDir(t.Context(), dir, "a", false); err == nil {
			t.Errorf("%s: claimed %+v", what, c)
		}
	}
}

func TestRecordsOfOthersAreRefused(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "coracle"))
	good := Record{Occupied: Occupied{Name: "a", DataDir: "/data", Node: cluster.NodeOptions{NFTable: "coracle-a", CgroupRoot: "/coracle-a"}}}
	if err := r.Put(good); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get("a"); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Record){
		func(rec *Record) { rec.Node.NFTable = "firewall" },
		func(rec *Record) { rec.Node.CgroupRoot = "/system.slice" },
		func(rec *Record) { rec.Node.CgroupRoot = "/coracle-a/../user.slice" },
	} {
		rec := good
		change(&rec)
		if err := r.Put(rec); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get("a"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%+v: %v", rec, err)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(r.Put(good), os.Chown(r.path("a"), stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	var foreign *sharedfile.OwnershipError
	if _, err := r.Get("a"); !errors.As(err, &foreign) {
		t.Errorf("a record of another user: %v", err)
	}
}

// Settings name what Coracle makes for the cluster, and nothing else.
func TestSettingsNameWhatIsTheClusters(t *testing.T) {
	for _, change := range []func(*Settings){
		func(s *Settings) { s.Options.Node.NFTable = "firewall" },
		func(s *Settings) { s.Options.Node.NFTable = "coracle-b" },
		func(s *Settings) { s.Options.Node.CgroupRoot = "/" },
		func(s *Settings) { s.Options.Node.CgroupRoot = "/coracle-a/../user.slice" },
	} {
		s := keptSettings(t.TempDir())
		change(&s)
		if err := s.Write(); err == nil {
			t.Errorf("%s, %s are written", s.Options.Node.NFTable, s.Options.Node.CgroupRoot)
		}
	}
}

// Settings that the file has already are not written again, so that a full disk
// does not make the write fail.
func TestSettingsThatAreThereAreNotWritten(t *testing.T) {
	s := keptSettings(t.TempDir())
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(SettingsFile(s.Options.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(SettingsFile(s.Options.DataDir)); err != nil || !os.SameFile(before, now) {
		t.Errorf("the same settings were written again: %v", err)
	}
}
