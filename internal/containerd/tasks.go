package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/supervise"
)

// tasks are the directories of containers that run, or have just ended.
type tasks struct{ runtime *Runtime }

// dir is where they are in containerd's state.
func (t tasks) dir() string {
	return filepath.Join(t.runtime.config.stateDir(), taskPlugin, Namespace)
}

// isGone reports whether the one of a container is not in containerd's state.
func (t tasks) isGone(id string) bool {
	_, err := os.Lstat(filepath.Join(t.dir(), id))
	return errors.Is(err, fs.ErrNotExist)
}

// isLost reports whether isGone holds, or runc made the container and does not know
// it any more, as after its state was removed while the container was being made.
// runc cannot end such a container, so that stopping it would never be done.
// containerd must not run, as it may be removing the container.
func (t tasks) isLost(id string) bool {
	if t.isGone(id) {
		return true
	}
	dir := filepath.Join(t.dir(), id)
	var options struct {
		Root string `json:"root"` // of runc's state, unless it is runc's own default
	}
	raw, err := os.ReadFile(filepath.Join(dir, "options.json"))
	if err != nil || json.Unmarshal(raw, &options) != nil || options.Root == "" {
		return false
	}
	_, made := os.Lstat(filepath.Join(dir, "init.pid")) // written last
	_, known := os.Lstat(filepath.Join(options.Root, Namespace, id))
	return made == nil && errors.Is(known, fs.ErrNotExist)
}

// removeLost removes those that containerd does not find again: those of
// removeHalfRemoved, and those in its root whose directories in its state are gone.
// containerd removes the latter only when it starts, and only if the kubelet has
// removed their containers by then. containerd must not run.
func (t tasks) removeLost() error {
	return t.remove(func(name string) bool { return isHalfRemoved(name) || t.isGone(name) })
}

// halfRemovedPeriod is how often finishRemovals looks.
const halfRemovedPeriod = time.Minute

// finishRemovals calls removeHalfRemoved and endGone from time to time until ctx ends.
func (t tasks) finishRemovals(ctx context.Context) {
	var gone map[string]bool
	supervise.Every(ctx, halfRemovedPeriod, func() {
		err := t.removeHalfRemoved()
		var failed error
		gone, failed = t.endGone(ctx, gone)
		if err = errors.Join(err, failed); err != nil {
			klog.FromContext(ctx).Error(err, "Removing what is left of deleted containers failed, will try again", "in", halfRemovedPeriod)
		}
	})
}

// endGone ends the shims of containers that are gone now as they were at the last look,
// and returns those that are gone now. A shim whose start failed half way, as for want of
// processes, is not known to containerd. One that is being removed ends by itself.
func (t tasks) endGone(ctx context.Context, before map[string]bool) (map[string]bool, error) {
	now := map[string]bool{}
	err := t.runtime.killOrphanedShims(ctx, func(id string) bool {
		if t.isGone(id) {
			now[id] = true
		}
		return now[id] && before[id]
	})
	return now, err
}

// removeHalfRemoved removes those that containerd was about to remove. It gives them
// a name with a dot first and ignores them from then on. They stay if it is killed, or
// if runc writes its log there meanwhile. That containerd is at it, too, does no harm.
func (t tasks) removeHalfRemoved() error { return t.remove(isHalfRemoved) }

func isHalfRemoved(name string) bool { return strings.HasPrefix(name, ".") }

// remove removes lost ones in containerd's state and root.
func (t tasks) remove(lost func(name string) bool) error {
	var errs []error
	for _, parent := range []string{t.dir(), filepath.Join(t.runtime.config.DataDir, rootName, taskPlugin, Namespace)} {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, entry := range entries {
			if lost(entry.Name()) {
				errs = append(errs, tree.Remove(filepath.Join(parent, entry.Name())))
			}
		}
	}
	return errors.Join(errs...)
}
