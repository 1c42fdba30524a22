package scheduler

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// confirmWithin is how long after its binding a pod is usually seen on its
	// node by the informer, and how often the others are looked at.
	confirmWithin = 30 * time.Second
	// maxConfirmed bounds the pods that are read from the API server at a time,
	// and maxUnconfirmed the pods for which it does not answer.
	maxConfirmed   = 1000
	maxUnconfirmed = 10
)

// forgetGonePods forgets assumed pods that were bound and deleted while the
// watch of assigned pods was interrupted, until ctx ends. No event about them
// will come. Pods that an extender says it bound, and did not, are tried again.
func (s *Scheduler) forgetGonePods(ctx context.Context) {
	ticker := s.clock.NewTicker(confirmWithin)
	defer ticker.Stop()
	late := map[types.UID]bool{} // were assumed the last time, without a binding under way
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			before := late
			late = map[types.UID]bool{}
			supervise.RecordPanic(ctx, supervise.Call(func() error {
				s.confirmAssumed(ctx, before, late)
				return nil
			}))
		}
	}
}

// confirmAssumed fills late with the assumed pods whose binding has ended, and
// asks the API server for those that were late before. Pods that it does not
// answer for do not keep it from asking for others, unless it answers for none.
func (s *Scheduler) confirmAssumed(ctx context.Context, before, late map[types.UID]bool) {
	var asked []*v1.Pod
	for _, pod := range s.cache.Assumed() {
		if s.queue.Expects(pod.UID) {
			continue
		}
		late[pod.UID] = true
		if before[pod.UID] && len(asked) < maxConfirmed {
			asked = append(asked, pod)
		}
	}
	failures := 0
	for _, pod := range asked {
		if failures == maxUnconfirmed {
			return
		}
		current, err := s.client.Kubernetes.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID:
			klog.FromContext(ctx).Info("Assumed pod is gone", "pod", klog.KObj(pod), "uid", pod.UID)
			s.forgetGone(pod)
		case err != nil: // the API server is asked again
			failures++
			klog.FromContext(ctx).Error(err, "Asking for an assumed pod failed", "pod", klog.KObj(pod))
		case current.Spec.NodeName == "":
			klog.FromContext(ctx).Info("Assumed pod was not bound", "pod", klog.KObj(pod), "uid", pod.UID)
			s.forgetGone(pod)
			s.setUnassigned(nil, framework.Visible(current, s.features))
		}
	}
}

func (s *Scheduler) forgetGone(pod *v1.Pod) {
	s.cache.Forget(pod.UID)
	s.leaveGroup(pod)
	s.event(framework.AssignedPod, framework.Delete, pod, nil)
}
