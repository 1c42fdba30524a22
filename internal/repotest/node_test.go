package repotest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unboundedFiles matches calls that read files of any size or type, or follow
// symbolic links.
var unboundedFiles = regexp.MustCompile(`\bos\.(ReadFile|Open|RemoveAll|Chmod|Chown|Lchown)\(|\bfilepath\.(Walk|WalkDir|EvalSymlinks)\(`)

// TestTheNodeReadsPodsFilesByItsSeam checks that the kubelet accesses files
// through internal/kubelet/files, whose reads are bounded and stay below their
// root: pods choose what is in their volumes, logs and messages.
func TestTheNodeReadsPodsFilesByItsSeam(t *testing.T) {
	exempt := []string{
		"internal/kubelet/files",                           // the seam itself
		"internal/kubelet/cgroup", "internal/kubelet/node", // the kernel's own files
	}
	err := walk(func(path string, _ fs.DirEntry) error {
		if !strings.HasPrefix(path, "internal/kubelet/") || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || slices.Contains(exempt, filepath.Dir(path)) {
			return nil
		}
		raw, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		for _, call := range unboundedFiles.FindAllString(string(raw), -1) {
			t.Errorf("%s calls %s...): a pod may have put a link, a pipe or a file without end there; use internal/kubelet/files", path, call)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
