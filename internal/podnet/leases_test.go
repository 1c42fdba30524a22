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
	if ids, err := n.Sandboxes(); err != nil || !slices.Equal(ids, []string{lost, lives}) {
		t.Errorf("sandboxes with addresses: %v, %v", ids, err)
	}
	if err := n.Release(lost); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"10.0.0.3", "10.0.0.5", "last_reserved_ip.0", "lock"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if err := n.Release(lost); err != nil {
		t.Errorf("again: %v", err)
	}
}
