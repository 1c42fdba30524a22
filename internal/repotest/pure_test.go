package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clocks are the functions that read the time or wait, by package.
var clocks = map[string][]string{
	"time":   {"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"},
	"metav1": {"Now", "NowMicro"},
}

// TestResourcesHaveNoClock checks that resources get the time passed in
// (resource.RequestContext.Now), so that their decisions can be tested and do not
// depend on the caller.
func TestResourcesHaveNoClock(t *testing.T) {
	err := walk(func(path string, _ fs.DirEntry) error {
		if !strings.HasPrefix(path, "internal/resource/") || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if called, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := called.X.(*ast.Ident); ok && slices.Contains(clocks[of.Name], called.Sel.Name) {
					t.Errorf("%s:%d uses %s.%s: resources are pure, and are told the time by their Request", path, files.Position(n.Pos()).Line, of.Name, called.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
