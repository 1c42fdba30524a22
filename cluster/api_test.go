package cluster

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The exported API is what testdata/api.txt says. A change of it that is meant
// is written there by
//
//	go test ./cluster -run TestAPI -rewrite
//
// and told in CHANGELOG.md: what is taken away or changed breaks programs.
func TestAPI(t *testing.T) {
	var api bytes.Buffer
	writeAPI(t, &api, ".")
	for _, alias := range []any{Status{}, Component{}, Component{}.Conditions} {
		ty := reflect.TypeOf(alias)
		if ty.Kind() == reflect.Slice {
			ty = ty.Elem()
		}
		fmt.Fprintf(&api, "fields of %s:\n", ty.Name())
		for i := range ty.NumField() {
			fmt.Fprintf(&api, "\t%s %s `%s`\n", ty.Field(i).Name, ty.Field(i).Type, ty.Field(i).Tag)
		}
	}
	writeAPI(t, &api, "clustertest")
	got := strings.ReplaceAll(api.String(), "\n\n", "\n")
	const golden = "testdata/api.txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the API is another than in %s (-want +got; if that is meant: go test ./cluster -run TestAPI -rewrite):\n%s", golden, diff)
	}
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
// internal packages, which nobody else can name, other than by an alias. It
// takes the comments away.
func checkDeclaration(t *testing.T, fset *token.FileSet, decl ast.Decl) {
	t.Helper()
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			return !n.Assign.IsValid()
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
				t.Errorf("%s: %s.%s is of an internal package, and nobody can name it", fset.Position(n.Pos()), x.Name, n.Sel.Name)
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
