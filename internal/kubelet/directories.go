package kubelet

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// makeDirectories makes the directories that pods may require to be there, as drivers
// and collectors of logs do.
func (c *Config) makeDirectories(ctx context.Context) error {
	if err := c.Files.MkdirAll(c.RootDirectory, 0o750); err != nil {
		return fmt.Errorf("make the kubelet's folder: %w", err)
	}
	if c.ShareRoot {
		if err := c.shareRoot(); err != nil {
			klog.FromContext(ctx).Error(err, "Containers on this node cannot mount anything for others below the kubelet's root directory (mountPropagation: Bidirectional)", "directory", c.RootDirectory)
		}
	}
	for _, name := range []string{"pods", "plugins"} {
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

// shareRoot makes the root directory, mounted on itself, a shared mount, unless it is on
// one. What is mounted below before that would be covered, and not be found again: then
// nothing is changed until the next time without.
func (c *Config) shareRoot() error {
	shared, err := c.Mounter.IsShared(c.RootDirectory)
	if err != nil || shared {
		return err
	}
	points, err := c.Mounter.Below(c.RootDirectory)
	if err != nil {
		return err
	}
	mounted := len(points) > 0 && points[len(points)-1] == c.RootDirectory
	if len(points) > 1 || len(points) == 1 && !mounted {
		return fmt.Errorf("%d mounts are below it already: this ends when the kubelet starts while there are none, as on a machine that was restarted", len(points))
	}
	if !mounted { // else by a kubelet that was killed, or by the user
		if err := c.Mounter.Mount(c.RootDirectory, c.RootDirectory, "", []string{"bind"}); err != nil {
			return err
		}
	}
	return c.Mounter.Mount("none", c.RootDirectory, "", []string{"shared"})
}
