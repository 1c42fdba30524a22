package kubelet

import (
	"fmt"
	"path/filepath"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// makeDirectories makes the directories that pods may require to be there, as drivers
// and collectors of logs do.
func (c *Config) makeDirectories() error {
	for _, name := range []string{"", "pods", "plugins"} {
		if err := c.Files.MkdirAll(filepath.Join(c.RootDirectory, name), 0o750); err != nil {
			return fmt.Errorf("make the kubelet's folder: %w", err)
		}
	}
	logs := c.Configuration.PodLogsDir
	for _, dir := range []string{logs, spec.LogLinkDirectory(logs)} {
		if err := c.Files.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the folder of logs: %w", err)
		}
	}
	return nil
}

// logDirectories returns the directories of logs that are not where they usually are in
// the machine's directory of logs, by their names there.
func (c *Config) logDirectories() map[string]string {
	out := make(map[string]string)
	for _, usual := range []string{hostpath.PodLogs, hostpath.LogLinks} {
		if real := c.paths().Real(usual); real != usual {
			out[filepath.Base(usual)] = real
		}
	}
	return out
}

// ShareRoot makes the root directory of a kubelet, mounted on itself, a shared mount,
// unless it is on one, so that what drivers in pods mount there (mountPropagation:
// Bidirectional) reaches other pods. Whoever calls it unmounts the directory once no
// kubelet needs it. What is mounted below before that would be covered, and not be found
// again: then ShareRoot returns an error, and changes nothing.
func ShareRoot(root string, disk files.FS, mounter files.Mounter) error {
	if err := disk.MkdirAll(root, 0o750); err != nil {
		return err
	}
	shared, err := mounter.IsShared(root)
	if err != nil || shared {
		return err
	}
	points, err := mounter.Below(root)
	if err != nil {
		return err
	}
	mounted := len(points) > 0 && points[len(points)-1] == root
	if len(points) > 1 || len(points) == 1 && !mounted {
		return fmt.Errorf("%d mounts are below %s already: a start without them ends this, as on a machine that was restarted", len(points), root)
	}
	if !mounted { // else by a process that was killed, or by the user
		if err := mounter.Mount(root, root, "", []string{"bind"}); err != nil {
			return err
		}
	}
	return mounter.Mount("none", root, "", []string{"shared"})
}
