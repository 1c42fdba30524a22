package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// Bounds of the events SystemOOM: a number at once, and then so many a second. What is
// beyond is only logged. Other events of the node need room as well.
const (
	oomEventBurst = 10
	oomEventRate  = 1.0 / 60
)

// watchOOM records an event of the node each time that the kernel kills a process because
// the machine has no memory, as upstream's watcher does (package oom). A process that is
// killed for the limit of a control group, such as that of its pod, does not count.
func (k *Kubelet) watchOOM(ctx context.Context, machine node.KernelLogger) {
	log, err := machine.KernelLog()
	if err == nil {
		limit := flowcontrol.NewTokenBucketRateLimiter(oomEventRate, oomEventBurst)
		err = node.WatchOOM(ctx, log, func(process string, pid int) {
			klog.FromContext(ctx).Info("The kernel killed a process because the machine has no memory", "process", process, "pid", pid)
			if limit.TryAccept() {
				k.recorder.Eventf(node.Reference(k.config.NodeName), v1.EventTypeWarning, "SystemOOM", "System OOM encountered, victim process: %s, pid: %d", process, pid)
			}
		})
	}
	if err != nil {
		klog.FromContext(ctx).Info("The kernel's log cannot be read, there are no events of processes that are killed because the machine has no memory", "err", err)
	}
}
