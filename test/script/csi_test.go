package script

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/coracle-io/coracle/internal/kubelet/csi/csitest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// csiDriver serves a CSI driver, whose volumes are directories and loop devices,
// to a kubelet: csidriver KUBELETROOT VOLUMES.
func csiDriver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: csidriver KUBELETROOT VOLUMES")
	}
	const name = "dir.csi.test"
	root := args[0]
	driver := &csitest.Driver{
		Name: name, NodeID: "node-1", Dir: args[1], FS: files.OS{}, Mounter: files.OS{},
		Capabilities: []csipb.NodeServiceCapability_RPC_Type{
			csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		},
		Place: func(volume, target string) error { return placeLoop(ts, filepath.Join(args[1], volume+".img"), target) },
	}
	ts.Check(os.MkdirAll(args[1], 0o755))
	stop, err := driver.Serve(filepath.Join(root, "plugins", name, "csi.sock"), filepath.Join(root, "plugins_registry", name+"-reg.sock"))
	ts.Check(err)
	ts.Defer(stop)
}

// driverInPod is the first argument of the program of these tests where it is a CSI
// driver in a pod instead: the socket's directory, that of registrations and that of its
// volumes follow.
const driverInPod = "csi-driver-in-pod"

// serveInPod serves a CSI driver, whose volumes are directories, until the process ends.
func serveInPod(args []string) error {
	const name = "dir.csi.test"
	driver := &csitest.Driver{Name: name, NodeID: "node-1", Dir: args[2], FS: files.OS{}, Mounter: files.OS{}}
	endpoint, registration := filepath.Join(args[0], "csi.sock"), filepath.Join(args[1], name+"-reg.sock")
	for _, path := range []string{endpoint, registration} { // of the container before
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if _, err := driver.Serve(endpoint, registration); err != nil {
		return err
	}
	select {}
}

// placeLoop makes a loop device for a file, which the session detaches at its end,
// and bind-mounts it on target. A target that is placed stays as it is.
func placeLoop(ts *testscript.TestScript, image, target string) error {
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	output, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		return fmt.Errorf("make a loop device for %s: %w", image, err)
	}
	device := strings.TrimSpace(string(output))
	ts.Defer(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		return err
	}
	return files.OS{}.Mount(device, target, "", []string{"bind"})
}
