package cluster

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/goldentest"
)

// TestAPI compares the exported API with testdata/api.txt. Record an intended
// change with
//
//	go test ./cluster -run TestAPI -rewrite
//
// and in CHANGELOG.md: removals and changes break programs.
func TestAPI(t *testing.T) {
	var api bytes.Buffer
	writeAPI(t, &api, ".")
	writeAPI(t, &api, "clustertest")
	got := strings.ReplaceAll(api.String(), "\n\n", "\n")
	goldentest.Compare(t, "testdata/api.txt", got, *rewrite, "go test ./cluster -run TestAPI -rewrite")
}

// writeAPI writes the exported declarations of a package without comments, and
// reports those that have none.
func writeAPI(t *testing.T, api *bytes.Buffer, dir string) {
	t.Helper()
	fset := token.NewFileSet()
	pkg := parsePackage(t, fset, dir)
	fmt.Fprintf(api, "package %s\n", pkg.Name)
	write := func(docs string, decl ast.Decl) {
		if docs == "" {
			t.Errorf("%s: an exported name without a comment", fset.Position(decl.Pos()))
		}
		checkDeclaration(t, fset, decl)
		config := printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}
		if err := config.Fprint(api, fset, decl); err != nil {
			t.Fatal(err)
		}
		api.WriteString("\n")
	}
	functions := func(list []*doc.Func) {
		for _, f := range list {
			f.Decl.Doc, f.Decl.Body = nil, nil
			write(f.Doc, f.Decl)
		}
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			v.Decl.Doc = nil
			write(v.Doc, v.Decl)
		}
	}
	values(pkg.Consts)
	values(pkg.Vars)
	functions(pkg.Funcs)
	for _, ty := range pkg.Types {
		ty.Decl.Doc = nil
		write(ty.Doc, ty.Decl)
		values(ty.Consts)
		values(ty.Vars)
		functions(ty.Funcs)
		functions(ty.Methods)
	}
}

// parsePackage reads a package without its tests.
func parsePackage(t *testing.T, fset *token.FileSet, dir string) *doc.Package {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, err := doc.NewFromFiles(fset, files, filepath.Join("github.com/coracle-io/coracle/cluster", dir))
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// checkDeclaration reports exported fields without a comment, and types of
// internal packages, which no other module can name. It takes the comments away.
func checkDeclaration(t *testing.T, fset *token.FileSet, decl ast.Decl) {
	t.Helper()
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			return n.Type != nil
		case *ast.StructType:
			for _, f := range n.Fields.List {
				if f.Doc == nil && f.Comment == nil {
					t.Errorf("%s: an exported field without a comment", fset.Position(f.Pos()))
				}
				f.Doc, f.Comment = nil, nil
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && internalPackage(t, fset.Position(n.Pos()).Filename, x.Name) {
				t.Errorf("%s: %s.%s is of an internal package, which no other module can name", fset.Position(n.Pos()), x.Name, n.Sel.Name)
			}
		}
		return true
	})
}

func internalPackage(t *testing.T, file, name string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(path, "/internal/") && (i.Name != nil && i.Name.Name == name || filepath.Base(path) == name) {
			return true
		}
	}
	return false
}
