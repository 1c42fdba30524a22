// Package repotest checks the rules of this repository. A failing test gives
// the reason for its rule.
package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/coracle-io/coracle/"

// ban forbids packages below from to import those below to.
type ban struct {
	from   string
	to     []string
	reason string
}

var components = []string{"internal/controllers", "internal/scheduler", "internal/kubelet", "internal/proxy", "internal/dns", "internal/ingress", "internal/networkpolicy", "internal/l2announce"}

func bans() []ban {
	all := []ban{
		{"internal/store", []string{"k8s.io/api/", module + "internal/resource", module + "internal/watchcache"}, "the store holds keys and bytes and never sees a kind"},
		{"internal/resource", []string{
			"net/http", "os", module + "internal/store", module + "internal/watchcache", module + "internal/apiserver", module + "internal/client",
			"math/rand", "crypto/rand", "k8s.io/apimachinery/pkg/util/rand", "k8s.io/utils/clock",
		}, "resources are pure rules: no I/O, no randomness, and no clock except the one that is passed in"},
		{"internal/apiserver/registry", []string{"net/http"}, "the registry's operations do not depend on the transport"},
		{"internal/apiserver/pods", []string{"net/http"}, "actions use the registry and do not depend on the transport"},
		{"internal/apiserver/reviews", []string{"net/http"}, "reviews use the registry and do not depend on the transport"},
		{"internal/apiserver/tokens", []string{"net/http"}, "tokens use the registry and do not depend on the transport"},
		{"", []string{"k8s.io/kubernetes"}, "this project implements what k8s.io/kubernetes does"},
	}
	for _, from := range components {
		b := ban{from, []string{module + "internal/store", module + "internal/apiserver", module + "internal/watchcache", module + "cluster"}, "components use the API only through a client, so that they run alike in one process and in many"}
		for _, to := range components {
			if to != from {
				b.to = append(b.to, module+to)
			}
		}
		all = append(all, b)
	}
	return all
}

func TestImports(t *testing.T) {
	for file, imports := range goFiles(t) {
		for _, b := range bans() {
			if !strings.HasPrefix(file, b.from) || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test") {
				continue
			}
			for _, i := range imports {
				for _, to := range b.to {
					if i == strings.TrimSuffix(to, "/") || strings.HasPrefix(i, strings.TrimSuffix(to, "/")+"/") {
						t.Errorf("%s imports %s: %s", file, i, b.reason)
					}
				}
			}
		}
	}
}

// TestNothingBelowTheAPIServerImportsIt checks that the packages below
// internal/apiserver do not import it.
func TestNothingBelowTheAPIServerImportsIt(t *testing.T) {
	const server = "internal/apiserver"
	for file, imports := range goFiles(t) {
		dir := filepath.Dir(file)
		if !strings.HasPrefix(dir, server+"/") || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(dir, "test") {
			continue
		}
		if slices.Contains(imports, module+server) {
			t.Errorf("%s imports %s: what both need has a package of its own", file, server)
		}
	}
}

// TestBubblesAreFitForClients checks that tests in bubbles of testing/synctest
// import internal/bubble if they use client-go.
func TestBubblesAreFitForClients(t *testing.T) {
	code, tests := map[string][]string{}, map[string][]string{} // imports by folder
	for file, imports := range goFiles(t) {
		dir := filepath.Dir(file)
		if strings.HasSuffix(file, "_test.go") {
			tests[dir] = append(tests[dir], imports...)
		} else {
			code[dir] = append(code[dir], imports...)
		}
	}
	for dir, imports := range tests {
		if !slices.Contains(imports, "testing/synctest") || strings.HasPrefix(dir, "test/clients/") {
			continue // those are modules of their own
		}
		seen := map[string]bool{}
		for left := slices.Concat(imports, code[dir]); len(left) > 0; left = left[1:] {
			if i := left[0]; !seen[i] {
				seen[i] = true
				if below, ok := strings.CutPrefix(i, module); ok {
					left = append(left, code[below]...)
				}
			}
		}
		for i := range seen {
			if strings.HasPrefix(i, "k8s.io/client-go/") && !seen[module+"internal/bubble"] {
				t.Errorf("%s: tests use testing/synctest and client-go without internal/bubble: an error that client-go reports stops its goroutine", dir)
				break
			}
		}
	}
}

// source is a parsed Go file of the repository.
type source struct {
	tokens *token.FileSet
	syntax *ast.File
}

// sources are all Go files of the repository by path, parsed once for all tests,
// which must not change them.
var sources = sync.OnceValues(func() (map[string]source, error) {
	files := map[string]source{}
	err := walk(func(path string, _ fs.DirEntry) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		tokens := token.NewFileSet()
		f, err := parser.ParseFile(tokens, filepath.Join(root, path), nil, parser.ParseComments|parser.SkipObjectResolution)
		files[path] = source{tokens, f}
		return err
	})
	return files, err
})

// everySource returns the Go files of the repository by path.
func everySource(t *testing.T) map[string]source {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// goFiles returns the imports of each Go file in the repository.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	for path, f := range everySource(t) {
		files[path] = nil
		for _, i := range f.syntax.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			files[path] = append(files[path], p)
		}
	}
	return files
}

const root = "../.."

// walk visits the repository's files, except built and generated ones.
func walk(visit func(path string, d fs.DirEntry) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == ".git" || rel == "bin" || rel == "dist" || rel == "internal/apiserver/openapi/generate/definitions" {
				return filepath.SkipDir
			}
			return nil
		}
		return visit(rel, d)
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestTimeZonesAreBuiltIn checks that packages which look up time zones by name bring
// them along.
func TestTimeZonesAreBuiltIn(t *testing.T) {
	looks, brings := map[string]string{}, map[string]bool{}
	for file, imports := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if strings.Contains(read(t, file), "time.LoadLocation(") {
			looks[filepath.Dir(file)] = file
		}
		brings[filepath.Dir(file)] = brings[filepath.Dir(file)] || slices.Contains(imports, "time/tzdata")
	}
	for dir, file := range looks {
		if !brings[dir] {
			t.Errorf("%s looks up time zones, and no file beside it imports time/tzdata: many machines have no database of time zones, and a CronJob with a zone would not work there", file)
		}
	}
}
