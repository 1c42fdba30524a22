package pod

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helper "k8s.io/component-helpers/scheduling/corev1"

	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/podquery"
)

// proposal is a resize that the node has not accepted yet.
type proposal struct {
	pod       *v1.Pod   // with the resources that it asks for
	allocated *v1.Pod   // with those that it has
	since     time.Time // when it was deferred; zero: it is tried for the first time
	wake      func()    // wakes the worker of the pod
}

// deferredResizes returns the resizes that wait for room on the node, without those of
// pods that end.
func deferredResizes(workers []*worker) (waiting []*proposal) {
	for _, w := range workers {
		r, since := w.inbox.request(), w.inbox.deferredSince()
		allocated, holds := w.inbox.active()
		if holds && !since.IsZero() && !r.ending() {
			waiting = append(waiting, &proposal{r.pod, allocated, since, w.inbox.wake})
		}
	}
	return waiting
}

// grows reports whether the resize asks for more CPU or memory than the pod has.
func (p *proposal) grows() bool {
	has := resourcehelper.PodRequests(p.allocated, resourcehelper.PodResourcesOptions{})
	asks := resourcehelper.PodRequests(p.pod, resourcehelper.PodResourcesOptions{})
	return asks.Cpu().Cmp(*has.Cpu()) > 0 || asks.Memory().Cmp(*has.Memory()) > 0
}

// compare orders resizes as upstream's allocation manager tries them: first those that
// ask for nothing more, which should always fit, then by the priority of the pods, then
// those of guaranteed pods, then those that have waited longest.
func (p *proposal) compare(other *proposal) int {
	guaranteed := func(p *proposal) bool { return podquery.QOSClass(p.pod) == v1.PodQOSGuaranteed }
	return cmp.Or(
		order.FalseFirst(p.grows(), other.grows()),
		cmp.Compare(corev1helper.PodPriority(other.pod), corev1helper.PodPriority(p.pod)),
		order.FalseFirst(guaranteed(other), guaranteed(p)),
		order.FalseFirst(p.since.IsZero(), other.since.IsZero()),
		p.since.Compare(other.since),
	)
}

// after returns which of the resizes that wait come before p and fit, and the pods of
// the node, besides that of p, if those have what they ask for. Active are the pods with
// what they have.
func (p *proposal) after(waiting []*proposal, active []*v1.Pod, fits func(p *proposal, others []*v1.Pod) bool) (ahead []*proposal, others []*v1.Pod) {
	waiting = slices.DeleteFunc(waiting, func(w *proposal) bool { return w.pod.UID == p.pod.UID || w.compare(p) >= 0 })
	slices.SortStableFunc(waiting, (*proposal).compare)
	for _, w := range waiting {
		if rest := without(active, w.pod.UID); fits(w, rest) {
			active = append(rest, w.pod)
			ahead = append(ahead, w)
		}
	}
	return ahead, without(active, p.pod.UID)
}

// without returns the pods besides one.
func without(pods []*v1.Pod, uid types.UID) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return p.UID == uid })
}

// pendingResize returns the condition of a pod whose resize waits from now on.
func pendingResize(reason, message string) *v1.PodCondition {
	return &v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
}

// deferredBefore returns the condition of a pod whose resize an earlier kubelet has
// deferred, nil if it has not.
func deferredBefore(pod *v1.Pod) *v1.PodCondition {
	c := podquery.Condition(&pod.Status, v1.PodResizePending)
	if c == nil || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonDeferred || c.LastTransitionTime.IsZero() || podquery.IsFinished(pod) {
		return nil
	}
	return c.DeepCopy()
}
