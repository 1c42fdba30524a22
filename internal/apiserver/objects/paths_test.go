package objects_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/resource/all"
)

// TestPathsAreStoragePaths compares the constants with the resources, which own
// the paths: a stage that reads another path finds nothing.
func TestPathsAreStoragePaths(t *testing.T) {
	stored := map[string]bool{}
	for _, r := range all.All() {
		stored[r.Storage.Path] = true
	}
	f, err := parser.ParseFile(token.NewFileSet(), "objects.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || strings.HasSuffix(spec.Names[0].Name, "Field") {
			return true
		}
		found++
		path, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !stored[path] {
			t.Errorf("%s: no resource is stored at %q, %v", spec.Names[0].Name, path, err)
		}
		return false
	})
	if found == 0 {
		t.Error("there are no paths")
	}
}
