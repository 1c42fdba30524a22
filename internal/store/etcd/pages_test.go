package etcd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// resident returns how many bytes of a file's mappings are in memory
// (proc_pid_smaps(5)).
func resident(t *testing.T, file string) (bytes int64) {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	of := ""
	for line := range strings.Lines(string(raw)) {
		if _, _, name := mapping(line); name != "" && strings.HasPrefix(name, "/") {
			of = name
		}
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &kilobytes); err == nil && of == file {
			bytes += kilobytes << 10
		}
	}
	return bytes
}

// TestReleasePages checks that the pages of a file leave the memory of the process
// and have the same content when they are read again.
func TestReleasePages(t *testing.T) {
	const size = 8 << 20
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	if err := os.Mkdir(filepath.Join(dir, "a dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a dir", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(dir, "a dir", "db")
	f, err := os.Create(real)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	if !bytes.Equal(mapped, content) {
		t.Fatal("the mapping differs from the file")
	}
	before := resident(t, real)
	if before < size/2 {
		t.Skipf("%d bytes of %d are in memory after reading them all", before, size)
	}
	if err := releasePages(filepath.Join(dir, "link", "db")); err != nil {
		t.Fatal(err)
	}
	if after := resident(t, real); after > before/2 {
		t.Errorf("%d bytes are in memory, %d before", after, before)
	}
	if !bytes.Equal(mapped, content) {
		t.Error("the file has changed")
	}
}
