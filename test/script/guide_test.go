package script

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/test/mark"
)

// block is a fenced block of a page: its language, and the file that it is the
// content of, if any.
type block struct{ language, file, content string }

// blocks returns the fenced blocks of a page.
func blocks(page string) []block {
	var out []block
	for _, match := range regexp.MustCompile("(?ms)^```(\\w+)(?: (\\S+))?\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		out = append(out, block{match[1], match[2], match[3]})
	}
	return out
}

// guideTimeout bounds the commands of one page.
const guideTimeout = 10 * time.Minute

// coracleShim is coracle with clusters of this test in place of those that a page
// names or means.
const coracleShim = `#!/bin/bash
args=()
named=
for a in "$@"; do
	case "$a" in --name=*) a="--name=$CLUSTER-${a#--name=}"; named=1;; esac
	args+=("$a")
done
case "$1" in
up|down|stop|status|logs|kubeconfig|doctor|etcdctl|image|node)
	if [ -z "$named" ]; then args=("$1" --name=$CLUSTER "${args[@]:1}"); fi;;
esac
exec "$CORACLE" "${args[@]}"
`

// kubectlShim is kubectl, which waits longer than a page says, and repeats an
// exec that fails: what a page asks a Service is asked a moment after its pods are
// ready, and its rules may follow later.
const kubectlShim = `#!/bin/bash
args=("${@/#--context=/--context=$CLUSTER-}")
args=("${args[@]/#--timeout=60s/--timeout=180s}")
if [ "$1" = exec ]; then
	for _ in {1..100}; do
		"$CORACLE" kubectl "${args[@]}" && exit
		sleep 0.2
	done
fi
exec "$CORACLE" kubectl "${args[@]}"
`

// TestGuide runs the commands of each page of the guide: the blocks marked sh, in
// order and in one directory, in which the blocks with a file name are files. A
// page's other blocks are not commands, or need what is not here.
func TestGuide(t *testing.T) {
	t.Parallel() // its pages are one after another
	runPages(t, func(page string) bool { return !slices.Contains(pagesAlone, page) })
}

// TestGuideAlone runs the pages during which no other cluster may start.
func TestGuideAlone(t *testing.T) {
	runPages(t, func(page string) bool { return slices.Contains(pagesAlone, page) })
}

// pagesAlone are the pages that remove a cluster and restore it: ports and address
// ranges are its own again only if no new cluster has chosen them meanwhile.
var pagesAlone = []string{"backup"}

func runPages(t *testing.T, wanted func(page string) bool) {
	root, binary := underTest(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "guide", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages = slices.DeleteFunc(pages, func(page string) bool { return !wanted(pageName(page)) })
	if len(pages) == 0 {
		t.Fatal("no pages")
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var script strings.Builder
		all := blocks(string(raw))
		for _, b := range all {
			if b.language == "sh" {
				script.WriteString(b.content)
			}
		}
		if script.Len() == 0 {
			continue
		}
		t.Run(pageName(page), func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("starts nodes, which needs root")
			}
			// Sessions have names of their own: one of them may have the page's.
			runPage(t, binary, mark.Name("guide-"+pageName(page)), script.String(), all)
		})
	}
}

func pageName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".md") }

// machinePorts matches the ports of the machine that pages name. Another run of the
// pages, or a program on the machine, may have them.
var machinePorts = regexp.MustCompile(`\b1808[0-9]\b`)

func runPage(t *testing.T, binary, cluster, script string, files []block) {
	dir, bin := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{"coracle": coracleShim, "kubectl": kubectlShim} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ports := map[string]string{}
	withFreePorts := func(text string) string {
		return machinePorts.ReplaceAllStringFunc(text, func(port string) string {
			if ports[port] == "" {
				ports[port] = strconv.Itoa(freeport.For(t))
			}
			return ports[port]
		})
	}
	for _, f := range files {
		if f.file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f.file), []byte(withFreePorts(f.content)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environment := append(os.Environ(),
		"HOME="+dir, "KUBECONFIG=", "CLUSTER="+cluster, "CORACLE="+binary, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Cleanup(func() {
		for _, name := range []string{cluster, cluster + "-dev"} {
			down := exec.Command(binary, "down", "--yes", "--name="+name)
			down.Env = environment
			if out, err := down.CombinedOutput(); err != nil {
				t.Errorf("down %s: %v\n%s", name, err, out)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), guideTimeout)
	defer cancel()
	const endJobs = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	cmd := exec.CommandContext(ctx, "bash", "-exuo", "pipefail", "-c", endJobs+withFreePorts(script))
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, environment, 10*time.Second // for what a page leaves running
	// Processes that the page started and a failure left, such as a port-forward,
	// end too: they hold the output open. Clusters have a session of their own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGuideShowsWhatRuns checks that each Go block of the guide is made of whole
// declarations that stand, the same, in an example that is run, and that links
// lead to files.
func TestGuideShowsWhatRuns(t *testing.T) {
	examples := declarations(t, "../../cluster/example_test.go", "")
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(string(raw), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), match[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		for _, b := range blocks(string(raw)) {
			if b.language != "go" {
				continue
			}
			for name, shown := range declarations(t, page, "package cluster_test\n\n"+b.content) {
				if run, ok := examples[name]; !ok {
					t.Errorf("%s: no example in cluster has %s", page, name)
				} else if shown != run {
					t.Errorf("%s: %s is not what cluster/example_test.go has:\n%s", page, name, run)
				}
			}
		}
	}
}

// declarations returns the text of each function of a Go file, with its comment,
// by name. The text is read from the file if source is empty. Text that is no Go
// file, or that declares no function, fails the test.
func declarations(t *testing.T, name, source string) map[string]string {
	t.Helper()
	if source == "" {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source = string(raw)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%v, in\n%s", err, source)
		return nil
	}
	out := map[string]string{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			out[f.Name.Name] = source[files.Position(from).Offset:files.Position(f.End()).Offset]
		}
	}
	if len(out) == 0 {
		t.Errorf("%s: no function in\n%s", name, source)
	}
	return out
}
