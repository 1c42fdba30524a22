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

// prepareNode prepares a node whose components the session starts one by one:
// preparenode FILE... It sets RUN, a short directory for a runtime's sockets
// and state, BUNDLE, the directory of its programs, NODE, the node's name, and
// BRIDGE, a name for a network interface, and expands these variables in the
// files. At the end of the session it removes everything that belongs to the
// node.
func prepareNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: preparenode FILE...")
	}
	host, err := os.Hostname()
	ts.Check(err)
	bundle, err := filepath.Abs("../../bin/bundle")
	ts.Check(err)
	cluster := ts.Getenv("CLUSTER")
	bridge := cluster[:min(len(cluster), 15)]
	run := "/run/" + cluster
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
