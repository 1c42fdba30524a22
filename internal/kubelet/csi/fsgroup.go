package csi

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	events "k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Times of the events about a change of the group that takes long. They are upstream's.
const (
	firstGroupEvent = 30 * time.Second
	nextGroupEvent  = time.Minute
)

// GroupChange gives a volume to the fsGroup of a pod, also one that no driver has.
type GroupChange struct {
	FS       files.FS
	Recorder events.EventRecorder // nil: there are no events
	Pod      *v1.Pod
	Dir      string // of the volume
	Shown    string // the name of Dir in events

	visited int
	next    time.Time // of an event
	told    bool
}

// Apply makes the change. With OnRootMismatch, a volume whose root belongs to the group
// already is left as it is. The pod is told of a change that takes long: its containers do
// not start before the end.
func (c *GroupChange) Apply() error {
	sc := c.Pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	gid := int(*sc.FSGroup)
	if sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch {
		if matches, err := c.FS.Shared(c.Dir, gid, false); err != nil || matches {
			return err
		}
	}
	c.next = time.Now().Add(firstGroupEvent)
	return c.FS.Share(c.Dir, gid, false, c.visit)
}

// visit counts a file, and records an event if it is time for one.
func (c *GroupChange) visit() {
	c.visited++
	now := time.Now()
	if c.Recorder == nil || now.Before(c.next) {
		return
	}
	message := fmt.Sprintf("Setting volume ownership for %s, processed %d files.", c.Shown, c.visited)
	if !c.told {
		message = fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods", c.Shown)
	}
	c.told, c.next = true, now.Add(nextGroupEvent)
	c.Recorder.Event(c.Pod, v1.EventTypeWarning, "VolumePermissionChangeInProgress", message)
}
