package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files beside directories that are too deep are counted, and the error says
// that there may be more.
func TestUsageWithADeepTree(t *testing.T) {
	const deepest, size = 5, 1 << 20
	root := t.TempDir()
	for _, name := range []string{"a", "z"} {
		put(t, filepath.Join(root, name+"file"), strings.Repeat("x", size))
		if err := os.MkdirAll(filepath.Join(root, name, strings.Repeat("d/", 2*deepest)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(root, "a/d/file"), strings.Repeat("x", size))
	bytes, inodes, err := usage(root, deepest)
	if bytes < 3*size || err == nil {
		t.Errorf("%d bytes in %d inodes, %v; want at least %d bytes and an error", bytes, inodes, err, 3*size)
	}
	if bytes, _, err := usage(root, 100); bytes < 3*size || err != nil {
		t.Errorf("%d bytes, %v; want at least %d", bytes, err, 3*size)
	}
}
