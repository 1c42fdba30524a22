package script

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// otherUID returns the id of another user of this machine, whom it does not know
// by a name. It is of this process alone.
func otherUID() int { return 100_000 + os.Getpid() }

// otherUser makes a home directory of another user and removes it, with the
// clusters of this session that the user has: otheruser VARIABLE. It stores the
// path in the variable, and the id of the user in VARIABLE_UID. The user runs
// commands by the program "as", which it puts into the PATH: exec as COMMAND
// ARG...
func otherUser(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: otheruser VARIABLE")
	}
	home, err := os.MkdirTemp("", "coracle-user-")
	ts.Check(err)
	ts.Defer(func() { ts.Check(os.RemoveAll(home)) })
	ts.Check(os.Chown(home, otherUID(), otherUID()))
	ts.Setenv(args[0], home)
	ts.Setenv(args[0]+"_UID", strconv.Itoa(otherUID()))
	bin := ts.MkAbs("bin")
	ts.Check(os.Mkdir(bin, 0o755))
	ts.Setenv("PATH", bin+string(os.PathListSeparator)+ts.Getenv("PATH"))
	programs := readablePrograms(ts)
	line := fmt.Sprintf("#!/bin/sh\ncd / && exec setpriv --reuid=%d --regid=%[1]d --clear-groups env PATH=%s:\"$PATH\" HOME=\"${AS_HOME-%s}\" \"$@\"\n", otherUID(), programs, home)
	ts.Check(os.WriteFile(filepath.Join(bin, "as"), []byte(line), 0o755))
	coracle, name := filepath.Join(programs, "coracle"), ts.Getenv("CLUSTER")
	ts.Defer(func() {
		for _, cluster := range []string{name, name + "-2", name + "-3"} {
			down := exec.Command(coracle, "down", "--yes", "--name="+cluster)
			down.Dir, down.Env = "/", []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
			down.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(otherUID()), Gid: uint32(otherUID())}}
			if out, err := down.CombinedOutput(); err != nil {
				ts.Logf("down %s of the other user: %v\n%s", cluster, err, out)
			}
		}
	})
}

// readablePrograms returns a directory with the program and with what it runs
// for a cluster without a node. The other user may not enter the repository, for
// example if it is in somebody's home directory.
func readablePrograms(ts *testscript.TestScript) string {
	dir, err := os.MkdirTemp("", "coracle-programs-")
	ts.Check(err)
	ts.Defer(func() { ts.Check(os.RemoveAll(dir)) })
	ts.Check(os.MkdirAll(filepath.Join(dir, "bundle", "bin"), 0o755))
	ts.Check(os.Chmod(dir, 0o755))
	for name, to := range map[string]string{"coracle": "coracle", "etcdctl": "bundle/bin/etcdctl"} {
		from, to := program(ts, name), filepath.Join(dir, to)
		if os.Link(from, to) == nil {
			continue
		}
		content, err := os.ReadFile(from)
		ts.Check(err)
		ts.Check(os.WriteFile(to, content, 0o755))
	}
	return dir
}

// noProcesses checks that the other user has no processes, except those that have
// ended and that their parent has not noticed yet: noprocesses.
func noProcesses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: noprocesses")
	}
	all, err := filepath.Glob("/proc/[0-9]*/status")
	ts.Check(err)
	for _, file := range all {
		raw, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(raw), "\nUid:\t"+strconv.Itoa(otherUID())+"\t") && !strings.Contains(string(raw), "\nState:\tZ") {
			ts.Fatalf("the other user still has a process: %s", raw)
		}
	}
}
