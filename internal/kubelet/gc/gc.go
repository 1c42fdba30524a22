// Package gc removes what pods have left on the node and in the API server. It
// corresponds to upstream's container garbage collector and to the housekeeping of
// its sync loop. Package image collects images.
package gc

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	housekeepingPeriod = 2 * time.Second
	// collectionPeriod is a minute in upstream for most of what is collected here. What
	// is listed each time is little, and in memory or in one directory.
	collectionPeriod = 10 * time.Second
)

// every calls work once in each period until ctx ends, and recovers its panics.
func every(ctx context.Context, period time.Duration, part string, work func()) {
	supervise.Every(ctx, period, func() { supervise.Contain(ctx, part, work) })
}

// Containers removes the containers of live pods that have ended, except the last
// instance of each, until ctx ends. Their pods' workers remove most of them when
// they start the next instance, but that can fail.
func Containers(ctx context.Context, runtime internalapi.RuntimeService, pods func() []pod.Observed) {
	every(ctx, collectionPeriod, "containers", func() { FreeDead(ctx, runtime, pods()) })
}

// FreeDead removes the containers of pods that have ended, except the last instance of
// each, and returns how many there were.
func FreeDead(ctx context.Context, runtime internalapi.RuntimeService, pods []pod.Observed) (freed int) {
	for _, p := range pods {
		kept := map[string]bool{}
		for _, c := range p.Runtime.Containers {
			if c.State != cri.Exited {
				continue
			}
			if !kept[c.Name] {
				kept[c.Name] = true
				continue
			}
			if err := runtime.RemoveContainer(ctx, c.ID); err != nil && !cri.IsNotFound(err) {
				klog.FromContext(ctx).Error(err, "Removing a dead container failed", "container", c.ID)
				continue
			}
			freed++
			if c.LogPath != "" {
				_ = logs.Remove(c.LogPath)
			}
		}
	}
	return freed
}

// Sandboxes removes the sandboxes of live pods that are not ready and have no
// containers, until ctx ends. It keeps the newest sandbox of each pod.
func Sandboxes(ctx context.Context, runtime internalapi.RuntimeService, pods func() []pod.Observed) {
	every(ctx, collectionPeriod, "sandboxes", func() {
		for _, p := range pods() {
			inUse := map[string]bool{}
			for _, c := range p.Runtime.Containers {
				inUse[c.SandboxID] = true
			}
			for i, s := range p.Runtime.Sandboxes {
				if i == 0 || s.Ready || inUse[s.ID] {
					continue
				}
				if err := runtime.RemovePodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
					klog.FromContext(ctx).Error(err, "Removing a dead sandbox failed", "sandbox", s.ID)
				}
			}
		}
	})
}

// Pods are the pods that have workers.
type Pods interface {
	Has(uid types.UID) bool
	// Ready reports whether all pods of the node are known.
	Ready() bool
	// Orphan starts a worker that removes everything of a pod without one, unless
	// a source has the pod.
	Orphan(s *cri.Summary)
}

// Volumes removes the directories of pods without workers, until ctx ends.
// known lists the directories.
func Volumes(ctx context.Context, known func() ([]types.UID, error), pods Pods) {
	every(ctx, housekeepingPeriod, "housekeeping", func() {
		uids, err := known()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Listing the directories of pods failed, will try again")
		}
		for _, uid := range uids {
			if !pods.Has(uid) {
				pods.Orphan(&cri.Summary{UID: uid})
			}
		}
	})
}

// CGroups removes the control groups of pods without workers, until ctx ends.
// The group of a pod stays behind if the kernel was still busy with its
// processes, or if the kubelet was killed, when the pod ended. A group is removed
// if it has no processes a period after it was first seen: another kubelet may
// have just made it.
func CGroups(ctx context.Context, groups Groups, pods Pods) {
	before := map[types.UID]bool{}
	every(ctx, collectionPeriod, "control groups", func() {
		known, err := groups.Known()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Listing the control groups of pods failed, will try again")
		}
		seen := before
		before = map[types.UID]bool{}
		for _, uid := range known {
			if !pods.Ready() || pods.Has(uid) {
				continue
			}
			before[uid] = true
			if !seen[uid] {
				continue
			}
			if err := groups.Remove(uid); err != nil {
				klog.FromContext(ctx).V(2).Info("The control group of a pod that is gone is still in use", "podUID", uid, "err", err)
			}
		}
	})
}

// Groups are the control groups of pods.
type Groups interface {
	Known() ([]types.UID, error)
	Remove(uid types.UID) error
}

// Mirrors deletes mirror pods whose static pods are gone, until ctx ends.
func Mirrors(ctx context.Context, orphaned func() []*v1.Pod, remove func(ctx context.Context, mirror *v1.Pod) error) {
	every(ctx, housekeepingPeriod, "housekeeping", func() {
		for _, mirror := range orphaned() {
			if err := remove(ctx, mirror); err != nil {
				klog.FromContext(ctx).Error(err, "Deleting a mirror pod without its static pod failed, will try again", "pod", klog.KObj(mirror))
			}
		}
	})
}

// LogLinks removes the links in a directory whose logs are gone, until ctx ends.
func LogLinks(ctx context.Context, fsys files.FS, dir string) {
	every(ctx, collectionPeriod, "logs", func() {
		names, err := fsys.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).Error(err, "Listing the links to logs failed, will try again", "directory", dir)
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			if mode, err := fsys.Lstat(path); err != nil || mode&fs.ModeSymlink == 0 || !strings.HasSuffix(name, ".log") {
				continue
			}
			if _, err := fsys.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				klog.FromContext(ctx).Error(err, "Removing the link to a log that is gone failed, will try again", "link", path)
			}
		}
	})
}

// Logs removes the log directories of pods without workers, until ctx ends. dir
// has one directory NAMESPACE_NAME_UID for each pod. A pod whose containers the
// runtime has lost leaves its logs behind: nothing else on the node names it.
func Logs(ctx context.Context, fsys files.FS, dir string, pods Pods) {
	every(ctx, collectionPeriod, "logs", func() {
		names, err := fsys.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).Error(err, "Listing the log directories of pods failed, will try again", "directory", dir)
		}
		for _, name := range names {
			parts := strings.Split(name, "_")
			if len(parts) != 3 || !files.IsPodUID(parts[2]) || pods.Has(types.UID(parts[2])) {
				continue
			}
			pods.Orphan(&cri.Summary{UID: types.UID(parts[2]), Namespace: parts[0], Name: parts[1]})
		}
	})
}
