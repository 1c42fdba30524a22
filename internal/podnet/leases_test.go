package podnet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReleaseAddressesOfLostSandbox releases what a sandbox held that the
// runtime has lost, and a lease that was cut short, and nothing else.
func TestReleaseAddressesOfLostSandbox(t *testing.T) {
	n := New(Config{Name: "net", LeaseDir: t.TempDir()})
	if ids, err := n.Sandboxes(); err != nil || len(ids) > 0 {
		t.Fatalf("before the first pod: %v, %v", ids, err)
	}
	dir := filepath.Join(n.config.LeaseDir, "net")
	lost, lives := strings.Repeat("a", 64), strings.Repeat("b", 64)
	files := map[string]string{
		"10.0.0.2": lost + "\r\neth0", "fd00::2": lost + "\r\neth0", "10.0.0.3": lives + "\r\neth0", "10.0.0.4": "",
		"10.0.0.5": strings.Repeat("x", maxLease+1), "last_reserved_ip.0": "10.0.0.4", "lock": "",
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := n.Sandboxes(); err != nil || !slices.Equal(ids, []string{"", lost, lives}) {
		t.Errorf("sandboxes with addresses: %q, %v", ids, err)
	}
	if err := n.Release(""); err != nil {
		t.Fatal(err)
	}
	if left, want := names(t, dir), []string{"10.0.0.2", "10.0.0.3", "10.0.0.5", "fd00::2", "last_reserved_ip.0", "lock"}; !slices.Equal(left, want) {
		t.Errorf("left after the release of leases without a sandbox are %v, want %v", left, want)
	}
	if err := n.Release(lost); err != nil {
		t.Fatal(err)
	}
	if left, want := names(t, dir), []string{"10.0.0.3", "10.0.0.5", "last_reserved_ip.0", "lock"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if err := n.Release(lost); err != nil {
		t.Errorf("again: %v", err)
	}
}

// names returns the names in a directory, sorted.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A machine that starts again without having stopped has the leases of all its
// former sandboxes, some of them empty. None is left, whatever the runtime lists. A
// start of the node alone releases nothing.
func TestAddressesOfFormerBoot(t *testing.T) {
	n := New(Config{Name: "net", LeaseDir: t.TempDir()})
	n.bootID, n.records = filepath.Join(t.TempDir(), "boot_id"), t.TempDir()
	dir := filepath.Join(n.config.LeaseDir, "net")
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		boot string
		left int // leases and records
	}{{"1\n", 0}, {"1\n", 4}, {"2\n", 0}, {"2\n", 4}} {
		write(n.bootID, test.boot)
		if err := n.ReleaseFormerBoot(); err != nil {
			t.Fatal(err)
		}
		ids, err := n.Sandboxes()
		if err != nil {
			t.Fatal(err)
		}
		results, err := n.results()
		if err != nil {
			t.Fatal(err)
		}
		if got := len(ids) + len(results); got != test.left {
			t.Errorf("boot %q: left are %q and %q, want %d", test.boot, ids, results, test.left)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		sandbox := strings.Repeat("a", 64)
		write(filepath.Join(dir, "lock"), "")
		write(filepath.Join(dir, "10.0.0.2"), sandbox+"\r\neth0")
		write(filepath.Join(dir, "10.0.0.3"), strings.Repeat("b", 64)+"\r\neth0")
		write(filepath.Join(dir, "10.0.0.4"), "")
		write(filepath.Join(n.records, "net-"+sandbox+"-eth0"), "{}")
	}
}
