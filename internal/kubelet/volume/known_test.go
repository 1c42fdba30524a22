package volume

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// A directory among the pods' that is not a pod's, as when another file system
// is mounted there, is nothing that may be removed.
func TestOnlyPodsAreKnown(t *testing.T) {
	v := &Manager{Root: t.TempDir(), FS: files.OS{}, Mounter: files.OS{}}
	for _, name := range []string{"6f1c9d3e-0a2b-4c5d-8e9f-001122334455", "0123456789abcdef0123456789abcdef", "doc", "precious-data", "..x", "lost+found"} {
		if err := os.MkdirAll(filepath.Join(v.Root, "pods", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want := []types.UID{"0123456789abcdef0123456789abcdef", "6f1c9d3e-0a2b-4c5d-8e9f-001122334455"}
	got, err := v.Known()
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("known are %q (%v), want %q", got, err, want)
	}
	v.Root = filepath.Join(v.Root, "new")
	if got, err := v.Known(); err != nil || len(got) > 0 {
		t.Errorf("before the first pod, known are %q (%v)", got, err)
	}
	if err := os.MkdirAll(v.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v.Root, "pods"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Known(); err == nil {
		t.Errorf("in a file, known are %q", got)
	}
}
