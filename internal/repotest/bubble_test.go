package repotest

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testFile is a file of tests.
type testFile struct {
	name   string
	tokens *token.FileSet
	syntax *ast.File
}

// testPackages returns the files of tests by directory.
func testPackages(t *testing.T) map[string][]testFile {
	t.Helper()
	packages := map[string][]testFile{}
	parsed(t, func(file string, tokens *token.FileSet, f *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			packages[filepath.Dir(file)] = append(packages[filepath.Dir(file)], testFile{file, tokens, f})
		}
	})
	return packages
}

// bubbles knows which code of a directory's tests runs in bubbles of
// testing/synctest, where time passes only while all goroutines wait. It tells
// functions apart by their names, and methods by theirs.
type bubbles struct {
	// wrappers are functions and methods that run an argument in a bubble.
	wrappers map[string]bool
	// inside are the declarations whose uses are in bubbles.
	inside map[*ast.FuncDecl]bool
}

func newBubbles(files []testFile) *bubbles {
	b := &bubbles{wrappers: map[string]bool{}, inside: map[*ast.FuncDecl]bool{}}
	named := map[string][]*ast.FuncDecl{}
	virtual := map[*ast.FuncDecl]bool{} // of files that use testing/synctest
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				named[useOf(fn)] = append(named[useOf(fn)], fn)
				virtual[fn] = slices.ContainsFunc(f.syntax.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for fn := range virtual {
			if !b.wrappers[fn.Name.Name] && b.wraps(fn) {
				b.wrappers[fn.Name.Name], grown = true, true
			}
		}
	}
	for fn := range virtual {
		b.inside[fn] = !isEntry(fn)
	}
	used := map[string]bool{}
	for shrunk := true; shrunk; {
		shrunk = false
		for _, f := range files {
			b.uses(f, func(name string, bubble bool) {
				used[name] = true
				for _, fn := range named[name] {
					if !bubble && b.inside[fn] {
						b.inside[fn], shrunk = false, true
					}
				}
			})
		}
	}
	for fn := range b.inside {
		if !used[useOf(fn)] { // it is called by an interface, if at all
			b.inside[fn] = virtual[fn] && !isEntry(fn)
		}
	}
	return b
}

// useOf returns the name by which a function or a method is used.
func useOf(fn *ast.FuncDecl) string {
	if fn.Recv != nil {
		return "." + fn.Name.Name
	}
	return fn.Name.Name
}

// uses calls see with the functions and methods that a file uses, and whether
// that is in a bubble.
func (b *bubbles) uses(f testFile, see func(name string, bubble bool)) {
	imported := map[string]bool{}
	for _, i := range f.syntax.Imports {
		imported[strings.Trim(filepath.Base(i.Path.Value), `"`)] = true
		if i.Name != nil {
			imported[i.Name.Name] = true
		}
	}
	for _, d := range f.syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		local := locals(fn)
		selected := map[*ast.Ident]bool{}
		b.visit(fn, func(n ast.Node, bubble bool) {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				selected[n.Sel] = true
			case *ast.CallExpr:
				called, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					break
				}
				if of, ok := called.X.(*ast.Ident); !ok || !imported[of.Name] || local[of.Name] {
					see("."+called.Sel.Name, bubble)
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok {
					selected[key] = true
				}
			case *ast.Ident:
				if !selected[n] && !local[n.Name] {
					see(n.Name, bubble)
				}
			}
		})
	}
}

// locals returns the names of a function's parameters and variables.
func locals(fn *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names[id.Name] = true
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// isEntry reports whether package testing calls a function.
func isEntry(fn *ast.FuncDecl) bool {
	return fn.Recv == nil && slices.ContainsFunc([]string{"Test", "Fuzz", "Benchmark", "Example"}, func(prefix string) bool { return strings.HasPrefix(fn.Name.Name, prefix) })
}

// starts reports whether a call runs an argument in a bubble.
func (b *bubbles) starts(call *ast.CallExpr) bool {
	switch called := call.Fun.(type) {
	case *ast.SelectorExpr:
		if of, ok := called.X.(*ast.Ident); ok && of.Name == "synctest" {
			return called.Sel.Name == "Test"
		}
		return b.wrappers[called.Sel.Name]
	case *ast.Ident:
		return b.wrappers[called.Name]
	}
	return false
}

// wraps reports whether a function runs one of its parameters in a bubble.
func (b *bubbles) wraps(fn *ast.FuncDecl) bool {
	parameters := map[string]bool{}
	for _, p := range fn.Type.Params.List {
		if _, ok := p.Type.(*ast.FuncType); ok {
			for _, name := range p.Names {
				parameters[name.Name] = true
			}
		}
	}
	found := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && b.starts(call) {
			for _, argument := range call.Args {
				ast.Inspect(argument, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok && parameters[id.Name] {
						found = true
					}
					return true
				})
			}
		}
		return true
	})
	return found
}

// visit calls see with each node of a function's body, and whether it runs in a
// bubble. Function literals of a function that starts a bubble do: they are in
// its table of tests.
func (b *bubbles) visit(fn *ast.FuncDecl, see func(n ast.Node, bubble bool)) {
	starts := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			starts = starts || b.starts(call)
		}
		return true
	})
	var within func(n ast.Node, bubble bool)
	within = func(n ast.Node, bubble bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			if n == nil {
				return false
			}
			see(n, bubble)
			if bubble {
				return true
			}
			switch n := n.(type) {
			case *ast.FuncLit:
				if starts {
					within(n.Body, true)
					return false
				}
			case *ast.CallExpr:
				if b.starts(n) {
					within(n.Fun, false)
					for _, argument := range n.Args {
						within(argument, true)
					}
					return false
				}
			}
			return true
		})
	}
	within(fn.Body, b.inside[fn])
}

// outside calls see with each node of a directory's tests that runs in real
// time, and its function.
func (b *bubbles) outside(files []testFile, see func(file testFile, fn *ast.FuncDecl, n ast.Node)) {
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				b.visit(fn, func(n ast.Node, bubble bool) {
					if !bubble {
						see(f, fn, n)
					}
				})
			}
		}
	}
}
