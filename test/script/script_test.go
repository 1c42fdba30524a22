// Package script runs sessions of a user (testdata/*.txtar) with the real
// binary, real containers and the real kubectl. Each session has clusters of
// its own name and takes them down at its end, whatever happened.
package script

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/coracle-io/coracle/internal/host"
)

func TestSessions(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	binary := os.Getenv("CORACLE_BINARY")
	if binary == "" {
		binary = filepath.Join(root, "bin", "coracle")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%s is missing: run these tests by make test", binary)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			session := strings.TrimSuffix(filepath.Base(env.WorkDir), ".txtar")
			name := "t" + strconv.Itoa(os.Getpid()) + "-" + strings.TrimPrefix(session, "script-")
			home := filepath.Join(env.WorkDir, "home")
			if err := os.Mkdir(home, 0o755); err != nil {
				return err
			}
			env.Values[outsideKey{}] = &outside{}
			env.Setenv("HOME", home)
			env.Setenv("CLUSTER", name)
			env.Setenv("EXAMPLES", filepath.Join(root, "examples"))
			if path, err := exec.LookPath("kubectl"); err == nil {
				env.Setenv("KUBECTL", path)
			}
			env.Setenv("DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+filepath.Join(root, "bin", "bundle", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Defer(func() {
				if failing, ok := env.T().(interface{ Failed() bool }); ok && failing.Failed() {
					tell(t, binary, name, home)
				}
				for _, n := range []string{name, name + "-2", name + "-3"} {
					down := exec.Command(binary, "down", "--yes", "--name="+n)
					down.Env = append(os.Environ(), "HOME="+home)
					if out, err := down.CombinedOutput(); err != nil {
						t.Errorf("down %s: %v\n%s", n, err, out)
					}
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kubectl":      kubectl,
			"eventually":   eventually,
			"kill9":        kill9,
			"request":      request,
			"large":        large,
			"freeport":     freeport,
			"holdport":     holdport,
			"createkilled": createkilled,
			"acknowledged": acknowledged,
			"noresidue":    noresidue,
			"etcdsocket":   etcdsocket,
			"nodeport":     nodeport,
			"affinity":     affinity,
			"different":    different,
			"byhand":       byHand,
			"registry":     startRegistry,
			"publish":      publish,
			"webserver":    startWebServer,
			"healthserver": healthServer,
			"serving":      serving,
		},
		Condition: func(condition string) (bool, error) {
			if condition == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", condition)
		},
	})
}

// tell logs what a cluster has to say of a session that failed.
func tell(t *testing.T, binary, name, home string) {
	for _, question := range []string{
		"kubectl get pods -A -o wide", "kubectl get events -A", "kubectl describe nodes", "status --name=" + name,
	} {
		cmd := exec.Command(binary, strings.Fields(question)...)
		cmd.Env = append(os.Environ(), "HOME="+home)
		out, err := cmd.CombinedOutput()
		t.Logf("coracle %s (%v):\n%s", question, err, out)
	}
}

// kubectlCommand is the machine's kubectl, or the one in the binary.
func kubectlCommand() []string {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return []string{path}
	}
	return []string{"coracle", "kubectl"}
}

// kubectl runs kubectl.
func kubectl(ts *testscript.TestScript, neg bool, args []string) {
	line := append(kubectlCommand(), args...)
	err := ts.Exec(line[0], line[1:]...)
	if (err != nil) != neg {
		ts.Fatalf("kubectl %s: error %v", strings.Join(args, " "), err)
	}
}

const patience = 60 * time.Second

// eventually repeats a command until its output has a text: eventually TEXT
// COMMAND ARG... It is for conditions that nothing can be waited for by.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT COMMAND [ARG...]")
	}
	line := args[1:]
	if line[0] == "kubectl" {
		line = append(kubectlCommand(), line[1:]...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		cmd := exec.CommandContext(ctx, program(ts, line[0]), line[1:]...)
		cmd.Dir = ts.MkAbs(".")
		cmd.Env = environment(ts)
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Contains(string(out), args[0]) {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("%q did not come in %v; the last output of %s (%v) was\n%s", args[0], patience, strings.Join(args[1:], " "), err, out)
		case <-again.C:
		}
	}
}

// program is where the session's PATH has a program.
func program(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && !filepath.IsAbs(name) {
			return path
		}
	}
	return name
}

func environment(ts *testscript.TestScript) []string {
	var env []string
	for _, key := range []string{"HOME", "PATH", "CLUSTER", "DATA", "EDITOR", "KUBECONFIG"} {
		env = append(env, key+"="+ts.Getenv(key))
	}
	return env
}

// kill9 kills the process of a cluster as nobody can prepare for: kill9 NAME.
func kill9(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: kill9 NAME")
	}
	record, err := host.NewRegistry(host.Root).Get(args[0])
	ts.Check(err)
	ts.Check(record.Kill(context.Background()))
}
