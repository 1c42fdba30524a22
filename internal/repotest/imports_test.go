// Package repotest holds the rules of this repository as tests. Each rule
// gives its reason when it is broken.
package repotest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/coracle-io/coracle/"

// ban says that the packages below from must not import those below to.
type ban struct {
	from   string
	to     []string
	reason string
}

var components = []string{"internal/controllers", "internal/scheduler", "internal/kubelet", "internal/proxy", "internal/dns"}

func bans() []ban {
	all := []ban{
		{"internal/store", []string{"k8s.io/api/", module + "internal/resource", module + "internal/watchcache"}, "the store holds keys and bytes and never sees a kind"},
		{"internal/resource", []string{
			"net/http", "os", module + "internal/store", module + "internal/watchcache", module + "internal/apiserver", module + "internal/client",
			"math/rand", "crypto/rand", "k8s.io/apimachinery/pkg/util/rand", "k8s.io/utils/clock",
		}, "resources are pure rules: no I/O, no chance, no clock but the one handed in"},
		{"internal/apiserver/registry", []string{"net/http"}, "the registry carries out what is asked of objects, however it was asked"},
		{"internal/apiserver/pods", []string{"net/http"}, "actions are carried out upon the registry, however they were asked for"},
		{"internal/apiserver/reviews", []string{"net/http"}, "reviews are answered upon the registry, however they were asked for"},
		{"internal/apiserver/tokens", []string{"net/http"}, "tokens are issued upon the registry, however they were asked for"},
		{"", []string{"k8s.io/kubernetes"}, "what k8s.io/kubernetes does is what this project writes"},
	}
	for _, from := range components {
		b := ban{from, []string{module + "internal/store", module + "internal/apiserver", module + "internal/watchcache", module + "cluster"}, "components see the API only through a client, so that they run the same in one process and across many"}
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

// The API server is made of its packages, which do not reach up to it.
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

// goFiles returns the imports of each Go file of the repository.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := walk(func(path string, d fs.DirEntry) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files[path] = nil
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			files[path] = append(files[path], p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const root = "../.."

// walk visits the repository's files, without what is built or generated.
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
