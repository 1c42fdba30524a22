package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A command that an error or a warning tells the user to run names the cluster:
// without the name it would affect the default cluster.
func TestHintsNameTheirCluster(t *testing.T) {
	hint := regexp.MustCompile(`coracle (?:up|down|start|stop|restart|status|etcdctl)\b[^;,(]*`)
	named := regexp.MustCompile(`--(?:name|data-dir)=|coracle (?:start|stop|restart) %s`)
	checked := 0
	for _, root := range []string{".", "../../cluster", "../../internal/host", "../../internal/processes"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if field, ok := n.(*ast.KeyValueExpr); ok { // examples of a command's help
					if key, ok := field.Key.(*ast.Ident); ok && (key.Name == "Example" || key.Name == "Long" || key.Name == "Use") {
						return false
					}
				}
				text, ok := n.(*ast.BasicLit)
				if !ok || text.Kind != token.STRING {
					return true
				}
				for _, command := range hint.FindAllString(text.Value, -1) {
					checked++
					if !named.MatchString(command) && !strings.Contains(text.Value, "is what coracle up runs") {
						t.Errorf("%s: %q names no cluster", path, command)
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
	if checked < 10 {
		t.Errorf("found only %d hints: this test is blind", checked)
	}
}
