// Package gc removes what pods have left on the node and in the API server. It
// stands for upstream's container garbage collector and for the part of its sync
// loop that is called housekeeping; images are collected by package image.
package gc

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	housekeepingPeriod = 2 * time.Second
	containerPeriod    = time.Minute
)

// every does work once in a period until ctx ends.
func every(ctx context.Context, period time.Duration, part string, work func()) {
	supervise.Every(ctx, period, func() { supervise.Contain(ctx, part, work) })
}

// Sandboxes removes the dead sandboxes of live pods but the newest of each,
// until ctx ends.
func Sandboxes(ctx context.Context, runtime internalapi.RuntimeService, pods func() []pod.Observed) {
	every(ctx, containerPeriod, "sandboxes", func() {
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

// Pods are those that have workers.
type Pods interface {
	Has(uid types.UID) bool
	Orphan(s *cri.Summary)
}

// Volumes has the folders of pods without workers removed, until ctx ends.
// known lists the folders.
func Volumes(ctx context.Context, known func() []types.UID, pods Pods) {
	every(ctx, housekeepingPeriod, "housekeeping", func() {
		for _, uid := range known() {
			if !pods.Has(uid) {
				pods.Orphan(&cri.Summary{UID: uid})
			}
		}
	})
}

// Mirrors deletes mirror pods without their static pods, until ctx ends.
func Mirrors(ctx context.Context, orphaned func() []*v1.Pod, remove func(ctx context.Context, mirror *v1.Pod) error) {
	every(ctx, housekeepingPeriod, "housekeeping", func() {
		for _, mirror := range orphaned() {
			if err := remove(ctx, mirror); err != nil {
				klog.FromContext(ctx).Error(err, "Deleting a mirror pod without its static pod failed, will try again", "pod", klog.KObj(mirror))
			}
		}
	})
}
