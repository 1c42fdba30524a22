// Package script runs sessions of a user (testdata/*.txtar, and testdata/alone) with the real
// binary, real containers and the kubectl of the binary. Each session uses clusters with
// names of its own and removes them at its end.
package script

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == driverInPod {
		fmt.Fprintln(os.Stderr, serveInPod(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(mark.Main(m))
}

// underTest returns the root of the repository and the program that is tested.
func underTest(t *testing.T) (root, binary string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if binary = os.Getenv("CORACLE_BINARY"); binary == "" {
		binary = filepath.Join(root, "bin", "coracle")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%s is missing: run these tests by make test", binary)
	}
	return root, binary
}

func TestSessions(t *testing.T) {
	t.Parallel()
	runSessions(t, "testdata")
}

// TestSessionsAlone runs the sessions that disturb others, also those of other
// packages: tools/test.sh runs it when nothing else runs. Another user does not see
// root's clusters, so that one of theirs may take the ports of one that is stopped.
func TestSessionsAlone(t *testing.T) { runSessions(t, "testdata/alone") }

func runSessions(t *testing.T, dir string) {
	root, binary := underTest(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		WorkdirRoot:         os.TempDir(), // with short paths, because sockets are in it
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Defer(func() { _ = tree.Remove(env.WorkDir) }) // the rest goes with the directory of all tests
			session := strings.TrimSuffix(filepath.Base(env.WorkDir), ".txtar")
			name := mark.Name(strings.TrimPrefix(session, "script-"))
			home := filepath.Join(env.WorkDir, "home")
			if err := os.Mkdir(home, 0o755); err != nil {
				return err
			}
			env.Values[servicesKey{}] = &services{}
			env.Values[pluginsKey{}] = &plugins{bySock: map[string]*grpc.Server{}}
			env.Setenv("HOME", home)
			env.Setenv(mark.Variable, os.Getenv(mark.Variable))
			env.Setenv("CLUSTER", name)
			env.Setenv("TESTS", self)
			env.Setenv("EXAMPLES", filepath.Join(root, "examples"))
			for name, beginning := range ranges() {
				env.Setenv(name, beginning)
			}
			env.Setenv("DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+filepath.Join(root, "bin", "bundle", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Defer(func() {
				if failing, ok := env.T().(interface{ Failed() bool }); ok && failing.Failed() {
					reportCluster(t, binary, name, home)
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
			"becomes":      becomes,
			"kill9":        kill9,
			"killprocess":  killProcess,
			"request":      request,
			"large":        large,
			"freeport":     freePort,
			"holdport":     holdport,
			"createkilled": createkilled,
			"briefpods":    briefPods,
			"acknowledged": acknowledged,
			"noresidue":    noresidue,
			"etcdsocket":   etcdsocket,
			"nodeport":     nodeport,
			"affinity":     affinity,
			"different":    different,
			"deviceplugin": devicePlugin,
			"preparenode":  prepareNode,
			"registry":     startRegistry,
			"publish":      publish,
			"webserver":    startWebServer,
			"healthserver": healthServer,
			"serving":      serving,
			"csidriver":    csiDriver,
			"dradriver":    draDriver,
			"otheruser":    otherUser,
			"noprocesses":  noProcesses,
			"machine":      machine,
		},
		Condition: conditionHolds,
	})
}

// conditionHolds reports whether a condition of a session, such as [root], holds here.
func conditionHolds(condition string) (bool, error) {
	switch condition {
	case "root":
		return os.Geteuid() == 0, nil
	case "tun": // the kernel has WireGuard, or a process can take its place
		_, err := os.Stat("/dev/net/tun")
		return err == nil, nil
	case "iptables": // the program, and what the kernel needs for session affinity, tried in a network namespace
		return exec.Command("unshare", "--net", "iptables", "-t", "nat", "-A", "OUTPUT", "-m", "recent", "--name", "coracle", "--rcheck").Run() == nil, nil
	case "ipv6": // containers often have a kernel with it, and may not use it
		off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
		return err == nil && strings.TrimSpace(string(off)) == "0", nil
	}
	return false, fmt.Errorf("unknown condition %q", condition)
}

// reportCluster logs the state of the cluster of a failed session.
func reportCluster(t *testing.T, binary, name, home string) {
	for _, question := range []string{
		"kubectl get pods -A -o wide", "kubectl get events -A", "kubectl describe nodes", "status --name=" + name,
	} {
		cmd := exec.Command(binary, strings.Fields(question)...)
		cmd.Env = append(os.Environ(), "HOME="+home)
		out, err := cmd.CombinedOutput()
		t.Logf("coracle %s (%v):\n%s", question, err, out)
	}
}

// ranges returns the beginnings of address ranges for clusters of sessions: PODS and
// SERVICES for one that starts each component itself, PODS4 and SERVICES4 for one with
// both families, and RANGE6 for those with IPv6. Two runs on one machine have different
// ones, and clusters choose none of them themselves.
func ranges() map[string]string {
	out := map[string]string{"RANGE6": fmt.Sprintf("fd19:%x", os.Getpid()%0x10000)}
	const each = 21 // of those from 10.128 to 10.211
	for i, name := range []string{"PODS", "SERVICES", "PODS4", "SERVICES4"} {
		out[name] = fmt.Sprintf("10.%d", 128+each*i+os.Getpid()%each)
	}
	return out
}

// kubectlCommand returns the kubectl in the binary, whose version is known, or
// the program in CORACLE_KUBECTL.
func kubectlCommand() []string {
	if program := os.Getenv("CORACLE_KUBECTL"); program != "" {
		return []string{program}
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

// timeout bounds the wait for a condition. It says nothing of speed: sessions
// run beside each other, on machines that are busy or stop for seconds.
const timeout = 3 * time.Minute

// eventually repeats a command until its output contains a text: eventually
// TEXT COMMAND ARG... It is for conditions that cannot be waited for.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT COMMAND [ARG...]")
	}
	repeat(ts, args, func(out string) bool { return strings.Contains(out, args[0]) })
}

// becomes repeats a command until its output matches a regular expression, in
// which ^ and $ also match at lines: becomes REGEXP COMMAND ARG... It is for
// what may change again, so that a second command would not see it.
func becomes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: becomes REGEXP COMMAND [ARG...]")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	repeat(ts, args, want.MatchString)
}

// repeat runs a command until its output is right. The first of args describes
// the awaited output, the command follows.
func repeat(ts *testscript.TestScript, args []string, right func(out string) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	last := "(none)"
	for {
		out, err := command(ctx, ts, args[1:]).CombinedOutput()
		if err == nil && right(string(out)) {
			return
		}
		if ctx.Err() == nil { // otherwise the command was killed
			last = fmt.Sprintf("%s(error %v)", out, err)
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("%q did not appear within %v; the last output of %s was\n%s", args[0], timeout, strings.Join(args[1:], " "), last)
		case <-again.C:
		}
	}
}

// command returns a command in the session's directory and environment. kubectl is
// that of kubectlCommand.
func command(ctx context.Context, ts *testscript.TestScript, line []string) *exec.Cmd {
	if line[0] == "kubectl" {
		line = append(kubectlCommand(), line[1:]...)
	}
	cmd := exec.CommandContext(ctx, program(ts, line[0]), line[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts)
	return cmd
}

// program returns the path of a program in the session's PATH.
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
	for _, key := range []string{"HOME", "PATH", "CLUSTER", "DATA", "EDITOR", "KUBECONFIG", mark.Variable} {
		env = append(env, key+"="+ts.Getenv(key))
	}
	return env
}

// kill9 kills the process of a cluster with SIGKILL: kill9 NAME.
func kill9(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: kill9 NAME")
	}
	record, err := host.NewRegistry(host.Root()).Get(args[0])
	ts.Check(err)
	ts.Check(record.Kill(context.Background()))
}
