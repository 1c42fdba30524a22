package containerd

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// oomScore is the adjustment of containerd's OOM score, as in containerd's unit
// for systemd. It does not depend on that of this process.
const oomScore = -999

// render returns containerd's configuration (version 4, containerd 2.4).
// Plugins that the CRI does not use are off, which keeps the start near 10 ms.
// With restrictOOM, processes cannot get lower OOM scores than containerd has.
func (r *Runtime) render(restrictOOM bool, dropIns []dropIn) string {
	c := r.config
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by coracle at every start; changes made here are lost.")
	imports := make([]string, 0, len(dropIns))
	for _, d := range dropIns {
		line("# %s is merged into it: sha256 %x", d.path, d.sum)
		imports = append(imports, quote(d.path))
	}
	line("version = 4")
	line("root = %s", quote(filepath.Join(c.DataDir, rootName)))
	line("state = %s", quote(r.config.stateDir()))
	line("imports = [%s]", strings.Join(imports, ", "))
	if !restrictOOM {
		line("oom_score = %d", oomScore) // its shims get one more
	}
	// Without it, containerd would go on without answering the CRI, for example if its
	// database is damaged.
	line("required_plugins = [%s, 'io.containerd.grpc.v1.cri']", quote(metadataPlugin))
	line("disabled_plugins = [")
	for _, plugin := range unusedPlugins() {
		line("  %s,", quote(plugin))
	}
	line("]")
	line("[plugins.'io.containerd.server.v1.grpc']")
	line("  address = %s", quote(r.config.socket()))
	line("[plugins.'io.containerd.server.v1.ttrpc']")
	line("  address = %s", quote(r.config.socket()+".ttrpc"))
	line("[plugins.'io.containerd.shim.v1.manager']")
	line("  socket_dir = %s", quote(r.config.shimSocketDir()))
	line("[plugins.'io.containerd.cri.v1.images']")
	line("  snapshotter = 'overlayfs'")
	line("  [plugins.'io.containerd.cri.v1.images'.pinned_images]")
	line("    sandbox = %s", quote(SandboxImage))
	line("  [plugins.'io.containerd.cri.v1.images'.registry]")
	line("    config_path = %s", quote(r.registryDir()))
	line("[plugins.'io.containerd.cri.v1.runtime']")
	line("  restrict_oom_score_adj = %t", restrictOOM)
	line("  netns_mounts_under_state_dir = true")
	line("  enable_criu = false")
	line("  [plugins.'io.containerd.cri.v1.runtime'.containerd]")
	line("    default_runtime_name = 'runc'")
	line("    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]")
	line("      runtime_type = 'io.containerd.runc.v2'")
	line("      runtime_path = %s", quote(r.config.program("containerd-shim-runc-v2")))
	line("      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]")
	line("        BinaryName = %s", quote(r.config.program("runc")))
	line("        Root = %s", quote(r.config.runcRoot()))
	line("        SystemdCgroup = false") // the kubelet has no other driver
	line("  [plugins.'io.containerd.cri.v1.runtime'.cni]")
	var plugins []string
	for _, dir := range c.pluginDirs() {
		plugins = append(plugins, quote(dir))
	}
	line("    bin_dirs = [%s]", strings.Join(plugins, ", "))
	line("    conf_dir = %s", quote(c.CNIConfDir))
	line("    use_internal_loopback = true")
	return b.String()
}

// dropIn is a file that is merged into the configuration.
type dropIn struct {
	path string
	sum  [sha256.Size]byte
}

const (
	maxDropIns    = 100
	maxDropInSize = 1 << 20 // bytes
)

// dropIns returns the drop-in files in the order of their names. Only root and
// the owner of this process may be able to write them: containerd runs what they
// name.
func (r *Runtime) dropIns() ([]dropIn, error) {
	dir := r.config.DropInDir
	if dir == "" {
		return nil, nil
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.toml"))
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	if len(paths) > maxDropIns {
		return nil, fmt.Errorf("%s has %d files, want %d at most", dir, len(paths), maxDropIns)
	}
	var out []dropIn
	for _, path := range append([]string{dir}, paths...) {
		info, err := os.Lstat(path)
		if err == nil {
			err = sharedfile.CheckOwner(path, info)
		}
		if err != nil {
			return nil, err
		}
		if path == dir {
			continue
		}
		if !info.Mode().IsRegular() || info.Size() > maxDropInSize {
			return nil, fmt.Errorf("%s: want a file of 1 MiB at most", path)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, dropIn{path, sha256.Sum256(content)})
	}
	return out, nil
}

// unusedPlugins are the plugins of the default build that no CRI request uses.
func unusedPlugins() []string {
	return []string{
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
}

// quote returns a TOML basic string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// lacksSysResource reports whether this process, and so its children, cannot
// lower the OOM scores of processes. containerd then raises the scores that the
// kubelet requests to the lowest allowed one.
func lacksSysResource() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("reading this process's capabilities: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0, nil
}
