package cluster

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/mountinfo"
)

// defaultKubeletRoot returns the root directory of a node's kubelet that has no argument
// for it.
func defaultKubeletRoot(o *settings) string { return filepath.Join(o.DataDir, "kubelet") }

// rootOfKubelet returns the root directory of the node's kubelet. With arguments that are
// wrong, which it never ran with, the directory may be the default.
func rootOfKubelet(o *settings) string {
	k := component.NewKubelet()
	k.Config.RootDirectory = defaultKubeletRoot(o)
	_ = o.setKubelet(o.Node.Number, k.AddFlags)
	return k.Config.RootDirectory
}

// unmountKubelet unmounts the volumes of pods in the root directory of a kubelet, and that
// from itself, unless something else is mounted there. It returns no error if the
// directory is missing.
func unmountKubelet(root string) error {
	var dirs []string
	for _, name := range []string{"pods", "plugins"} {
		dir, err := filepath.EvalSymlinks(filepath.Join(root, name)) // mount tables have no links
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		dirs = append(dirs, dir) // there may be a disk of the user
	}
	if err := mountinfo.DetachBelow(dirs...); err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return mountinfo.DetachFromItself(root)
}
