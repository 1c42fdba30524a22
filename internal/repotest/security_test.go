package repotest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPromisesAreTested checks that the tests that docs/security.md
// names exist.
func TestSecurityPromisesAreTested(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, match := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllSubmatch(page, -1) {
		named[string(match[1])] = true
	}
	if len(named) == 0 {
		t.Fatal("docs/security.md names no test")
	}
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	if err := walk(func(path string, _ fs.DirEntry) error {
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		for _, match := range function.FindAllSubmatch(source, -1) {
			delete(named, string(match[1]))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name := range named {
		t.Errorf("docs/security.md names %s, which does not exist: a promise that nothing shows is worth nothing", name)
	}
}
