package containerd

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// render is containerd's configuration (version 4, containerd 2.4). What the
// CRI does not use is switched off, which keeps the start near 10 ms.
func (r *Runtime) render(restrictOOM bool) string {
	c := r.config
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by coracle at every start; changes made here are lost.")
	line("version = 4")
	line("root = %s", quote(filepath.Join(c.DataDir, rootName)))
	line("state = %s", quote(r.stateDir()))
	line("imports = []")
	line("disabled_plugins = [")
	for _, plugin := range unusedPlugins {
		line("  %s,", quote(plugin))
	}
	line("]")
	line("[plugins.'io.containerd.server.v1.grpc']")
	line("  address = %s", quote(r.socket()))
	line("[plugins.'io.containerd.server.v1.ttrpc']")
	line("  address = %s", quote(r.socket()+".ttrpc"))
	line("[plugins.'io.containerd.shim.v1.manager']")
	line("  socket_dir = %s", quote(r.shimSocketDir()))
	line("[plugins.'io.containerd.cri.v1.images']")
	line("  snapshotter = 'overlayfs'")
	line("  [plugins.'io.containerd.cri.v1.images'.pinned_images]")
	line("    sandbox = %s", quote(SandboxImage))
	line("  [plugins.'io.containerd.cri.v1.images'.registry]")
	line("    config_path = %s", quote(c.RegistryDir))
	line("[plugins.'io.containerd.cri.v1.runtime']")
	line("  restrict_oom_score_adj = %t", restrictOOM)
	line("  netns_mounts_under_state_dir = true")
	line("  enable_criu = false")
	line("  [plugins.'io.containerd.cri.v1.runtime'.containerd]")
	line("    default_runtime_name = 'runc'")
	line("    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]")
	line("      runtime_type = 'io.containerd.runc.v2'")
	line("      runtime_path = %s", quote(r.program("containerd-shim-runc-v2")))
	line("      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]")
	line("        BinaryName = %s", quote(r.program("runc")))
	line("        Root = %s", quote(r.runcRoot()))
	line("        SystemdCgroup = %t", c.SystemdCgroup)
	line("  [plugins.'io.containerd.cri.v1.runtime'.cni]")
	line("    bin_dirs = [%s]", quote(filepath.Join(c.BundleDir, "cni")))
	line("    conf_dir = %s", quote(c.CNIConfDir))
	line("    use_internal_loopback = true")
	return b.String()
}

// unusedPlugins are those of the default build that no CRI request reaches.
var unusedPlugins = []string{
	"io.containerd.differ.v1.erofs",
	"io.containerd.image-verifier.v1.bindir",
	"io.containerd.internal.v1.opt",
	"io.containerd.internal.v1.restart",
	"io.containerd.monitor.container.v1.restart",
	"io.containerd.mount-handler.v1.erofs",
	"io.containerd.nri.v1.nri",
	"io.containerd.snapshotter.v1.blockfile",
	"io.containerd.snapshotter.v1.erofs",
	"io.containerd.snapshotter.v1.native",
}

// quote makes a TOML basic string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// lacksSysResource tells whether this process may not lower a process's OOM
// score, which holds for everything that it starts. containerd then raises
// the scores that the kubelet asks for to what is allowed.
func lacksSysResource() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("reading this process's capabilities: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0, nil
}
