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

// otherUID is the id of another user of this machine, whom it does not know by a
// name.
const otherUID = 54321

// otherUser makes a home directory of another user, whose path it stores in a
// variable, and removes it with the clusters of this session that the user has:
// otheruser VARIABLE. The user runs commands by the program "as", which it puts
// into the PATH: exec as COMMAND ARG...
func otherUser(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: otheruser VARIABLE")
	}
	home, err := os.MkdirTemp("", "coracle-user-")
	ts.Check(err)
	ts.Defer(func() { ts.Check(os.RemoveAll(home)) })
	ts.Check(os.Chown(home, otherUID, otherUID))
	ts.Setenv(args[0], home)
	bin := ts.MkAbs("bin")
	ts.Check(os.Mkdir(bin, 0o755))
	ts.Setenv("PATH", bin+string(os.PathListSeparator)+ts.Getenv("PATH"))
	line := fmt.Sprintf("#!/bin/sh\ncd / && exec setpriv --reuid=%d --regid=%[1]d --clear-groups env HOME=\"${AS_HOME-%s}\" \"$@\"\n", otherUID, home)
	ts.Check(os.WriteFile(filepath.Join(bin, "as"), []byte(line), 0o755))
	coracle, name := program(ts, "coracle"), ts.Getenv("CLUSTER")
	ts.Defer(func() {
		for _, cluster := range []string{name, name + "-2", name + "-3"} {
			down := exec.Command(coracle, "down", "--yes", "--name="+cluster)
			down.Dir, down.Env = "/", []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
			down.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUID, Gid: otherUID}}
			if out, err := down.CombinedOutput(); err != nil {
				ts.Logf("down %s of the other user: %v\n%s", cluster, err, out)
			}
		}
	})
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
		if err == nil && strings.Contains(string(raw), "\nUid:\t"+strconv.Itoa(otherUID)+"\t") && !strings.Contains(string(raw), "\nState:\tZ") {
			ts.Fatalf("the other user still has a process: %s", raw)
		}
	}
}
