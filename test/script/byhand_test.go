package script

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/coracle-io/coracle/internal/containerd"
)

// byHand prepares a node that the session puts together itself: byhand FILE...
// It sets RUN, a short folder for a runtime's sockets and state, BUNDLE, the
// folder of its programs, NODE, the name of this machine as a node, and BRIDGE,
// a name for a network interface, and replaces the variables in the files. At
// the end of a session, however it went, nothing of the node is left.
func byHand(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: byhand FILE...")
	}
	host, err := os.Hostname()
	ts.Check(err)
	bundle, err := filepath.Abs("../../bin/bundle")
	ts.Check(err)
	cluster := ts.Getenv("CLUSTER")
	bridge := cluster[:min(len(cluster), 15)]
	run := "/run/cri-" + cluster
	for key, value := range map[string]string{"NODE": strings.ToLower(host), "BUNDLE": bundle, "BRIDGE": bridge, "RUN": run} {
		ts.Setenv(key, value)
	}
	ts.Check(os.MkdirAll(run, 0o700))
	for _, name := range args {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(os.Expand(ts.ReadFile(name), ts.Getenv)), 0o600))
	}
	runtime, err := containerd.New(containerd.Config{
		BundleDir: bundle, DataDir: ts.MkAbs("containerd"), RunDir: run, CNIConfDir: ts.MkAbs("net.d"), CgroupRoot: "/" + cluster,
	})
	ts.Check(err)
	ts.Defer(func() {
		_, gone := exec.Command("ip", "link", "show", bridge).Output()
		undo := runtime.Purge(context.Background())
		undo = errors.Join(undo, exec.Command(program(ts, "coracle"), "proxy", "--cleanup", "--nftables-table="+cluster).Run())
		if gone == nil {
			undo = errors.Join(undo, exec.Command("ip", "link", "delete", bridge).Run())
		}
		if undo != nil {
			ts.Logf("cleaning up: %v", undo)
		}
	})
}
