package repotest

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mostFileLines     = 600
	mostFunctionLines = 80
	mostMethods       = 40
	mostFields        = 25
)

// TestFilesFitAHead checks the number of lines in a file.
func TestFilesFitAHead(t *testing.T) {
	for file := range goFiles(t) {
		if n := strings.Count(read(t, file), "\n"); n > mostFileLines {
			t.Errorf("%s has %d lines, more than %d: a file holds one concept, split it", file, n, mostFileLines)
		}
	}
}

// TestFunctionsFitAHead checks the number of lines in a function, from its
// first line to its closing brace. Tests and functions that return a table are
// no exception.
func TestFunctionsFitAHead(t *testing.T) {
	parsed(t, func(file string, files *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := file + ": " + fn.Name.Name
			if fn.Recv != nil {
				name = file + ": " + receiver(fn.Recv.List[0].Type) + "." + fn.Name.Name
			}
			if n := files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1; n > mostFunctionLines {
				t.Errorf("%s has %d lines, more than %d: a reader holds one screen in mind, move each step or each subject of a table into a function of its own", name, n, mostFunctionLines)
			}
		}
	})
}

// TestReceiversFitAHead checks the number of methods of a type. Outside of
// tests, those count that it gets by embedding types of this module. A type in a
// test file counts apart from the package's type of the same name.
func TestReceiversFitAHead(t *testing.T) {
	types := methodSets(t)
	for _, name := range slices.Sorted(maps.Keys(types)) {
		own, all := len(types[name].methods), len(types.all(name))
		if all > mostMethods {
			t.Errorf("%s has %d methods, %d of its own and %d of what it embeds, more than %d: all of them share its fields, so a reader must know all of them; split the fields into several types, or name the embedded field and call through it", name, all, own, all-own, mostMethods)
		}
	}
}

// methodSet has the names of a type's methods, and what it embeds.
type methodSet struct {
	methods map[string]bool
	embeds  []string
}

// typeSets has the types by typeName.
type typeSets map[string]*methodSet

// typeName identifies a type. Tests of another package are in the package's
// directory, with a package name of their own.
func typeName(dir, pkg, name string) string { return dir + ": " + pkg + "." + name }

// at returns the methods of a type, to add to them.
func (s typeSets) at(n string) *methodSet {
	if s[n] == nil {
		s[n] = &methodSet{methods: map[string]bool{}}
	}
	return s[n]
}

// all returns the names of a type's methods with those that it gets by
// embedding, of other packages only the exported ones.
func (s typeSets) all(name string) map[string]bool {
	names, seen := map[string]bool{}, map[string]bool{}
	pkg := name[:strings.LastIndex(name, ".")]
	var add func(string)
	add = func(n string) {
		if s[n] == nil || seen[n] {
			return
		}
		seen[n] = true
		for method := range s[n].methods {
			if strings.HasPrefix(n, pkg+".") || ast.IsExported(method) {
				names[method] = true
			}
		}
		for _, e := range s[n].embeds {
			add(e)
		}
	}
	add(name)
	return names
}

// methodSets returns the types that have methods or embed types of this module.
func methodSets(t *testing.T) typeSets {
	t.Helper()
	types := typeSets{}
	parsed(t, func(file string, _ *token.FileSet, f *ast.File) {
		dir, pkg := filepath.Dir(file), f.Name.Name
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					types.at(typeName(dir, pkg, receiver(n.Recv.List[0].Type))).methods[n.Name.Name] = true
				}
			case *ast.TypeSpec:
				s, ok := n.Type.(*ast.StructType)
				if !ok || strings.HasSuffix(file, "_test.go") {
					break
				}
				set := types.at(typeName(dir, pkg, n.Name.Name))
				set.embeds = append(set.embeds, embeddedTypes(file, f, s)...)
			}
			return true
		})
	})
	return types
}

// embeddedTypes returns the types of this module that a struct in a file embeds,
// by typeName.
func embeddedTypes(file string, f *ast.File, s *ast.StructType) []string {
	imports := map[string]string{} // the directories of packages of this module, by name
	for _, i := range f.Imports {
		if path, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); ok {
			name := filepath.Base(path)
			if i.Name != nil {
				name = i.Name.Name
			}
			imports[name] = path
		}
	}
	var types []string
	for _, field := range s.Fields.List {
		if field.Names != nil {
			continue
		}
		of, name := embedded(field.Type)
		if of == "" {
			types = append(types, typeName(filepath.Dir(file), f.Name.Name, name))
		} else if path := imports[of]; path != "" {
			types = append(types, typeName(path, filepath.Base(path), name))
		}
	}
	return types
}

// embedded returns the type of an embedded field, and the name of its package as
// the file has it.
func embedded(t ast.Expr) (pkg, name string) {
	switch t := t.(type) {
	case *ast.StarExpr:
		return embedded(t.X)
	case *ast.IndexExpr:
		return embedded(t.X)
	case *ast.IndexListExpr:
		return embedded(t.X)
	case *ast.SelectorExpr:
		if x, ok := t.X.(*ast.Ident); ok {
			return x.Name, t.Sel.Name
		}
	case *ast.Ident:
		return "", t.Name
	}
	return "", ""
}

// TestStructsFitAHead checks the number of fields of a struct, including structs
// without a name. An embedded struct of this module counts as its fields, if it is
// another package's as the exported ones.
func TestStructsFitAHead(t *testing.T) {
	structs := namedStructs(t)
	parsed(t, func(file string, files *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			all := structs.fields(newFieldSet(file, f, s), typeName(filepath.Dir(file), f.Name.Name, ""))
			if all > mostFields {
				t.Errorf("%s:%d: a struct has %d fields, with those of the structs that it embeds, more than %d: fields that are used together are a struct of their own, with a name or passed to what uses it", file, files.Position(s.Pos()).Line, all, mostFields)
			}
			return true
		})
	})
}

// fieldSet has the fields of a struct. Embedded types of this module are in
// embeds, and not among the fields.
type fieldSet struct {
	exported, unexported int
	embeds               []string
}

// newFieldSet returns the fields of a struct in a file.
func newFieldSet(file string, f *ast.File, s *ast.StructType) fieldSet {
	set := fieldSet{embeds: embeddedTypes(file, f, s)}
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			if !name.IsExported() {
				set.unexported++
			}
		}
	}
	set.exported = s.Fields.NumFields() - set.unexported - len(set.embeds)
	return set
}

// structSets has the structs with a name, by typeName.
type structSets map[string]fieldSet

func namedStructs(t *testing.T) structSets {
	t.Helper()
	structs := structSets{}
	parsed(t, func(file string, _ *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if named, ok := n.(*ast.TypeSpec); ok {
				if s, ok := named.Type.(*ast.StructType); ok {
					structs[typeName(filepath.Dir(file), f.Name.Name, named.Name.Name)] = newFieldSet(file, f, s)
				}
			}
			return true
		})
	})
	return structs
}

// fields returns how many fields of a struct a package can use by their names
// alone, including fields of embedded structs. pkg is typeName of a type
// without a name in the package.
func (s structSets) fields(of fieldSet, pkg string) int {
	n := of.exported + of.unexported
	for _, name := range of.embeds {
		inner, ok := s[name]
		if !ok {
			n++ // no struct
			continue
		}
		if !strings.HasPrefix(name, pkg) {
			inner.unexported = 0
		}
		n += s.fields(inner, pkg)
	}
	return n
}

// parsed calls visit for each Go file that was written by hand.
func parsed(t *testing.T, visit func(file string, files *token.FileSet, f *ast.File)) {
	t.Helper()
	all := everySource(t)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if f := all[file]; !ast.IsGenerated(f.syntax) {
			visit(file, f.tokens, f.syntax)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
