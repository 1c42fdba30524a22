package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const longestFile = 600 // lines

func TestFilesHoldOneConcept(t *testing.T) {
	for file := range goFiles(t) {
		if n := strings.Count(read(t, file), "\n"); n > longestFile {
			t.Errorf("%s has %d lines, more than %d: a file holds one concept, split it", file, n, longestFile)
		}
	}
}

const (
	mostMethods = 40
	mostFields  = 25
)

func TestReceiversFitAHead(t *testing.T) {
	methods := map[string]int{}
	for file := range goFiles(t) {
		if !below(file, "internal/apiserver/", "internal/kubelet/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[filepath.Dir(file)+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, more than %d: a type spread over many files is one large room, split it", name, n, mostMethods)
		}
	}
}

func TestStructsFitAHead(t *testing.T) {
	for file := range goFiles(t) {
		if !below(file, "internal/kubelet/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok && s.Fields.NumFields() > mostFields {
					t.Errorf("%s: %s has %d fields, more than %d: what belongs together is a struct of its own", file, spec.Name, s.Fields.NumFields(), mostFields)
				}
			}
			return true
		})
	}
}

// below says whether a file is in one of the folders.
func below(file string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(file, folder) })
}

// receiver is the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
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
	for file := range goFiles(t) {
		if file == "internal/processes/early/early.go" {
			continue // becomes the supervisor before the rest of the program takes memory and time
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s has an init function: lists are visible literals, so that a reader sees what runs", file)
			}
		}
	}
}

// Packages in which a panic ends a component and not the process.
var supervised = []string{
	"internal/controller/", "internal/controllers/", "internal/scheduler/", "internal/proxy/", "internal/dns/", "internal/component/", "internal/podnet/",
	"internal/client/", "internal/containerd/", "internal/pki/", "internal/kubelet/", "cluster/",
	"internal/apiserver/", "internal/watchcache/",
}

// Files there that begin goroutines of their own, and why they may.
var unsupervised = map[string]string{
	"internal/apiserver/run.go":      "the HTTP server recovers panics of requests",
	"internal/apiserver/stream.go":   "reads from a WebSocket, and calls nobody",
	"internal/apiserver/watch.go":    "passes ticks on, and calls nobody",
	"internal/client/factory.go":     "waits for informers that begin by Call, and outlive every component",
	"internal/client/informer.go":    "waits for listeners, whose handlers are guarded",
	"internal/client/transport.go":   "the API server's handler recovers panics of requests",
	"internal/containerd/process.go": "waits for a process that outlives the component",
	"internal/kubelet/files/os.go":   "hands on events of inotify, and calls nobody",
}

func TestGoroutinesCarryPanicsToTheirComponent(t *testing.T) {
	for file, imports := range goFiles(t) {
		inside := slices.ContainsFunc(supervised, func(dir string) bool { return strings.HasPrefix(file, dir) })
		if !inside || unsupervised[file] != "" || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test") {
			continue
		}
		const reason = "a panic there ends the whole process: use supervise.Go, supervise.Together or supervise.Each"
		if slices.Contains(imports, "golang.org/x/sync/errgroup") {
			t.Errorf("%s uses an errgroup: %s", file, reason)
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
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

func TestTestsDoNotSleep(t *testing.T) {
	sleep := regexp.MustCompile(`\btime\.Sleep\(`)
	synctest := regexp.MustCompile(`"testing/synctest"`)
	for file := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		if text := read(t, file); sleep.MatchString(text) && !synctest.MatchString(text) {
			t.Errorf("%s sleeps: wait on a condition, or use testing/synctest", file)
		}
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

// The map names every package that a reader can walk into.
func TestTheMapNamesEveryFolder(t *testing.T) {
	text := read(t, "docs/ARCHITECTURE.md")
	seen := map[string]bool{}
	err := walk(func(path string, _ fs.DirEntry) error {
		parts := strings.Split(path, "/")
		if strings.HasSuffix(path, ".go") && len(parts) > 2 && (parts[0] == "internal" || parts[0] == "test" || parts[0] == "cmd") {
			seen[parts[0]+"/"+parts[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range seen {
		if !strings.Contains(text, dir) {
			t.Errorf("docs/ARCHITECTURE.md does not name %s", dir)
		}
	}
}
