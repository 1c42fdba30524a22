package repotest

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var gateLiteral = regexp.MustCompile(`\.Enabled\("|\bGate: +"|\bFeatureGates\[`)

func TestFeatureGatesAreConstants(t *testing.T) {
	for file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for i, line := range strings.Split(read(t, file), "\n") {
			if gateLiteral.MatchString(line) {
				t.Errorf("%s:%d names a feature gate by a string: use the constant of internal/feature, so that a misspelt name does not compile", file, i+1)
			}
		}
	}
}

func TestPackageNamesSayWhatIsInside(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "misc"}
	for file := range goFiles(t) {
		if dir := filepath.Base(filepath.Dir(file)); slices.Contains(vague, dir) {
			t.Errorf("%s: a package called %s says nothing about what is inside", file, dir)
		}
	}
}

func TestNothingRegistersItself(t *testing.T) {
	for file, f := range everySource(t) {
		switch file {
		case "internal/processes/early/early.go": // starts the supervisor before the rest of the program is initialized
			continue
		case "internal/bubble/bubble.go": // changes a variable of a dependency, before goroutines read it
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s has an init function: lists are visible literals, so that a reader sees what runs", file)
			}
		}
	}
}

// TestTablesAreNotVariables checks that no variable of a package is a slice, a
// map or a set.
func TestTablesAreNotVariables(t *testing.T) {
	allowed := map[string]string{
		"internal/apiserver/request.go: noCache": "all answers share it, without a copy",
	}
	parsed(t, func(file string, files *token.FileSet, f *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for i, value := range s.(*ast.ValueSpec).Values {
					name := file + ": " + s.(*ast.ValueSpec).Names[i].Name
					if isTable(value) && allowed[name] == "" {
						t.Errorf("%s is a table that any code of the package can change: make it a function that returns it, or a switch", name)
					}
				}
			}
		}
	})
}

// isTable reports whether an expression makes a slice, a map or a set.
func isTable(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		switch e.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
			return true
		}
	case *ast.CallExpr:
		called, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		of, ok := called.X.(*ast.Ident)
		return ok && of.Name == "sets"
	}
	return false
}

// supervised are the packages in which a panic ends a component and not the
// process.
var supervised = []string{
	"internal/controller/", "internal/controllers/", "internal/scheduler/", "internal/proxy/", "internal/networkpolicy/", "internal/l2announce/", "internal/dns/", "internal/ingress/", "internal/component/", "internal/podnet/",
	"internal/client/", "internal/containerd/", "internal/pki/", "internal/kubelet/", "cluster/",
	"internal/apiserver/", "internal/watchcache/",
}

// unsupervised are files in these packages that may use go statements, with the
// reason.
var unsupervised = map[string]string{
	"internal/apiserver/run.go":      "the HTTP server recovers panics of requests",
	"internal/apiserver/stream.go":   "reads from a WebSocket, and calls no other component",
	"internal/apiserver/watch.go":    "passes ticks on, and calls no other component",
	"internal/client/factory.go":     "waits for informers that begin by Call, and outlive every component",
	"internal/client/informer.go":    "waits for listeners, whose handlers are guarded",
	"internal/client/transport.go":   "the API server's handler recovers panics of requests",
	"internal/containerd/process.go": "waits for a process that outlives the component",
	"internal/kubelet/files/os.go":   "hands on events of inotify, and calls no other component",
}

func TestGoroutinesCarryPanicsToTheirComponent(t *testing.T) {
	for file, imports := range goFiles(t) {
		inside := slices.ContainsFunc(supervised, func(dir string) bool { return strings.HasPrefix(file, dir) })
		if !inside || unsupervised[file] != "" || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test") {
			continue
		}
		const reason = "a panic there ends the whole process: use supervise.Go, supervise.WithContext or supervise.ForEach"
		if slices.Contains(imports, "golang.org/x/sync/errgroup") {
			t.Errorf("%s uses an errgroup: %s", file, reason)
		}
		ast.Inspect(everySource(t)[file].syntax, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s has a go statement: %s", file, reason)
			}
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "WaitGroup" && fmt.Sprint(s.X) == "sync" {
				t.Errorf("%s has a sync.WaitGroup: %s", file, reason)
			}
			return true
		})
	}
}

func TestNothingIsLeftUnfinished(t *testing.T) {
	mark := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	for file := range goFiles(t) {
		if strings.HasPrefix(file, "internal/repotest/") {
			continue
		}
		for i, line := range strings.Split(read(t, file), "\n") {
			if mark.MatchString(line) {
				t.Errorf("%s:%d has an unfinished mark: do it, or file an issue", file, i+1)
			}
		}
	}
}

func TestTheMakefileHasItsTargets(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, target := range []string{"up", "down", "build", "bundle", "test", "lint", "bench", "generate"} {
		if !regexp.MustCompile(`(?m)^` + target + `:`).MatchString(makefile) {
			t.Errorf("the Makefile has no target %s", target)
		}
	}
}

// TestTheMapNamesEveryFolder checks that docs/ARCHITECTURE.md names each folder
// of packages below cmd, internal and test with its path, and each package inside
// by the last part of its path. API groups and scheduler plugins are exempt: their
// packages have upstream's names.
func TestTheMapNamesEveryFolder(t *testing.T) {
	text := read(t, "docs/ARCHITECTURE.md")
	seen := map[string]bool{}
	err := walk(func(path string, _ fs.DirEntry) error {
		parts := strings.Split(path, "/")
		if strings.HasSuffix(path, ".go") && len(parts) > 2 && (parts[0] == "internal" || parts[0] == "test" || parts[0] == "cmd") {
			seen[parts[0]+"/"+parts[1]] = true
			if dir := filepath.Dir(path); !strings.Contains(path, "/testdata/") &&
				filepath.Dir(dir) != "internal/resource" && filepath.Dir(dir) != "internal/scheduler/plugin" {
				seen[filepath.Base(dir)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range seen {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(dir) + `\b`).MatchString(text) {
			t.Errorf("docs/ARCHITECTURE.md does not name %s", dir)
		}
	}
}

// TestTheMapNamesWhatThereIs checks that each file in docs/ARCHITECTURE.md that is
// named with its folder exists, and each identifier in backquotes stands in a Go
// file.
func TestTheMapNamesWhatThereIs(t *testing.T) {
	text := read(t, "docs/ARCHITECTURE.md")
	var paths []string
	words := map[string]bool{}
	word := regexp.MustCompile(`[A-Za-z_]\w*`)
	err := walk(func(path string, _ fs.DirEntry) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		paths = append(paths, path)
		for _, w := range word.FindAllString(read(t, path), -1) {
			words[w] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range regexp.MustCompile(`\w+(/\w+)+\.go\b`).FindAllString(text, -1) {
		if !slices.ContainsFunc(paths, func(path string) bool { return path == file || strings.HasSuffix(path, "/"+file) }) {
			t.Errorf("docs/ARCHITECTURE.md names %s, which does not exist", file)
		}
	}
	for _, name := range regexp.MustCompile("`([A-Za-z]+[A-Z]\\w*)`").FindAllStringSubmatch(text, -1) {
		if !words[name[1]] {
			t.Errorf("docs/ARCHITECTURE.md names %s, which no Go file has", name[1])
		}
	}
}
