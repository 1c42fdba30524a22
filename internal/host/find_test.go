package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Clusters whose record is damaged or lost are on this machine nevertheless.
func TestPresentClusters(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"clusters/damaged.json", "lost/settings.json", "damaged/settings.json", "other/file"} {
		path := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := NewRegistry(root).Present(); err != nil || !slices.Equal(got, []string{"damaged", "lost"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := NewRegistry(filepath.Join(root, "absent")).Present(); err != nil || len(got) > 0 {
		t.Errorf("%q, %v without a directory", got, err)
	}
}
