package admission

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
)

// served returns all resources in all versions that can be enabled.
func served(t *testing.T) []*resource.Resource {
	t.Helper()
	gates, err := feature.Parse([]string{"AllAlpha=true", "AllBeta=true"})
	if err != nil {
		t.Fatal(err)
	}
	resources, err := runtimeconfig.Serve(all.All(), []string{"api/all=true"}, gates)
	if err != nil {
		t.Fatal(err)
	}
	return resources
}

// typeName returns the package and name of an API type.
type typeName struct{ pkg, name string }

func nameOfType(o any) typeName {
	t := reflect.TypeOf(o).Elem()
	return typeName{t.PkgPath(), t.Name()}
}

// Plugins see the objects of a kind in the hub version, whichever version the
// client uses.
func TestPluginsSeeTheHubVersion(t *testing.T) {
	for _, r := range served(t) {
		if r.Virtual() {
			continue
		}
		hub := reflect.TypeOf(r.Hub().New())
		for i := range r.Versions {
			v := &r.Versions[i]
			if got := reflect.TypeOf(v.ToHub(v.New())); got != hub {
				t.Errorf("%s sent as %s reaches plugins as %s, not as %s", r.Plural, v.GroupVersion, got, hub)
			}
			if got := reflect.TypeOf(v.FromHub(r.Hub().New())); got != reflect.TypeOf(v.New()) {
				t.Errorf("%s is shown in %s as %s", r.Plural, v.GroupVersion, got)
			}
		}
	}
}

// Code that decides about requests must assert only types that objects have. An
// assertion of another type would let every request through. The test parses
// all type assertions, type switches and object readers of that code.
func TestTypeAssertionsCanMatch(t *testing.T) {
	arrives := map[typeName]bool{}
	hubs := map[string]typeName{} // by storage path
	for _, r := range served(t) {
		arrives[nameOfType(r.Hub().New())] = true
		hubs[r.Storage.Path] = nameOfType(r.Hub().New())
		for _, s := range r.Subresources {
			if obj, err := scheme.Scheme.New(s.Kind); err == nil {
				arrives[nameOfType(obj)] = true
			}
		}
	}
	// Connection options and the items of lists.
	for _, kind := range []string{"PodExecOptions", "PodAttachOptions", "PodPortForwardOptions", "PodLogOptions", "PodProxyOptions", "NodeProxyOptions", "ServiceProxyOptions"} {
		obj, err := scheme.Scheme.New(schema.GroupVersionKind{Version: "v1", Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		arrives[nameOfType(obj)] = true
	}
	if !arrives[nameOfType(&corev1.Pod{})] {
		t.Fatal("no pods arrive")
	}
	walked := 0
	for _, s := range sources(t, "..") {
		paths := s.constants
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				walked += s.check(t, arrives, n.Type)
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						walked += s.check(t, arrives, e)
					}
				}
			case *ast.CallExpr:
				reader, ok := n.Fun.(*ast.IndexExpr)
				if !ok || len(n.Args) == 0 {
					return true
				}
				if f, ok := reader.X.(*ast.SelectorExpr); ok && f.Sel.Name == "Of" {
					of, isAPI := s.named(reader.Index)
					at := paths[lastName(n.Args[1])]
					if walked++; isAPI && hubs[at] != of {
						t.Errorf("%s: reads %v at %q, where %v is stored", s.at(n), of, at, hubs[at])
					}
				}
			}
			return true
		})
	}
	if walked < 60 {
		t.Errorf("only %d places were found: the walk does not see what it should", walked)
	}
}

// source is one parsed file.
type source struct {
	files     *token.FileSet
	file      *ast.File
	imports   map[string]string
	constants map[string]string
}

// sources parses the files below dir, except tests.
func sources(t *testing.T, dir string) []source {
	t.Helper()
	var out []source
	files, constants := token.NewFileSet(), map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s := source{files: files, file: f, imports: map[string]string{}, constants: constants}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			local := path.Base(p)
			if i.Name != nil {
				local = i.Name.Name
			}
			s.imports[local] = p
		}
		out = append(out, s)
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != len(v.Names) {
				return true
			}
			for i, value := range v.Values {
				if l, ok := value.(*ast.BasicLit); ok && l.Kind == token.STRING {
					constants[v.Names[i].Name] = strings.Trim(l.Value, "\"`")
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s source) at(n ast.Node) token.Position { return s.files.Position(n.Pos()) }

// named returns the API type for *alias.Name.
func (s source) named(e ast.Expr) (typeName, bool) {
	star, ok := e.(*ast.StarExpr)
	if !ok {
		return typeName{}, false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	if !ok {
		return typeName{}, false
	}
	n := typeName{s.imports[lastName(sel.X)], sel.Sel.Name}
	return n, strings.HasPrefix(n.pkg, "k8s.io/api/") || strings.Contains(n.pkg, "/pkg/apis/") && !strings.HasPrefix(n.pkg, "k8s.io/apimachinery/")
}

func (s source) check(t *testing.T, arrives map[typeName]bool, e ast.Expr) int {
	of, isAPI := s.named(e)
	if !isAPI {
		return 0
	}
	if !arrives[of] {
		t.Errorf("%s: no object arrives as %s.%s: assert the type of the hub version", s.at(e), of.pkg, of.name)
	}
	return 1
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.BasicLit:
		return strings.Trim(e.Value, "\"`")
	}
	return ""
}
