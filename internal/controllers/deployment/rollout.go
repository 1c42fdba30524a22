package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/workload"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// rollout is one sync of one Deployment.
type rollout struct {
	*deployments
	// before is the Deployment as it was read; d is a copy that collects
	// what the sync changes in annotations and status.
	before, d *apps.Deployment
	sets      sets
}

// run takes the next step and returns after how long the Deployment has to be
// looked at again (0: when something changes).
func (r *rollout) run(ctx context.Context) (recheck time.Duration, err error) {
	if r.d.DeletionTimestamp != nil {
		return 0, r.report(ctx, summarize(r.d, r.sets, time.Now()))
	}
	notePause(r.d, time.Now())
	switch {
	case r.d.Spec.Paused || needsRescale(r.d, r.sets):
		if err := r.updateCurrent(ctx); err != nil {
			return 0, err
		}
		if err := r.resize(ctx, rescale(r.d, r.sets)...); err != nil {
			return 0, err
		}
		if r.d.Spec.Paused {
			if err := r.cleanUp(ctx); err != nil {
				return 0, err
			}
		}
		return 0, r.report(ctx, summarize(r.d, r.sets, time.Now()))
	case r.d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType:
		err = r.recreate(ctx)
	default:
		err = r.roll(ctx)
	}
	if err != nil {
		// What was found out about the failure is worth reporting too.
		return 0, errors.Join(err, r.report(ctx, r.d.Status))
	}
	status, recheck := rolloutStatus(r.d, r.sets, time.Now())
	if complete(r.d, &r.d.Status) {
		if err := r.cleanUp(ctx); err != nil {
			return 0, err
		}
	}
	return recheck, r.report(ctx, status)
}

// roll takes the next step of a rolling update: the new grows, else the old
// shrink.
func (r *rollout) roll(ctx context.Context) error {
	if err := r.ensureCurrent(ctx); err != nil {
		return err
	}
	if to := growCurrent(r.d, r.sets); to != size(r.sets.current) {
		return r.resize(ctx, scaling{r.sets.current, to})
	}
	return r.resize(ctx, shrinkOld(r.d, r.sets)...)
}

// recreate takes the next step of a Recreate: all old pods must be gone
// before the first new one is made.
func (r *rollout) recreate(ctx context.Context) error {
	if err := r.updateCurrent(ctx); err != nil {
		return err
	}
	var stop []scaling
	for _, rs := range active(r.sets.old) {
		stop = append(stop, scaling{rs, 0})
	}
	if len(stop) > 0 {
		return r.resize(ctx, stop...)
	}
	running, err := r.oldPodsRunning()
	if err != nil || running {
		return err
	}
	if err := r.ensureCurrent(ctx); err != nil {
		return err
	}
	return r.resize(ctx, scaling{r.sets.current, wanted(r.d)})
}

// oldPodsRunning reports whether there are pods of old ReplicaSets that have
// not finished.
func (r *rollout) oldPodsRunning() (bool, error) {
	for _, rs := range r.sets.old {
		owned, err := workload.Controlled[*v1.Pod](r.pods, rs.UID)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(owned, func(p *v1.Pod) bool { return !podutil.IsFinished(p) }) {
			return true, nil
		}
	}
	return false, nil
}

// ensureCurrent makes the current ReplicaSet if there is none, and brings its
// annotations up to date if there is.
func (r *rollout) ensureCurrent(ctx context.Context) error {
	if r.sets.current != nil {
		return r.updateCurrent(ctx)
	}
	rs := newReplicaSet(r.d)
	to := growCurrent(r.d, sets{current: rs, old: r.sets.old})
	rs.Spec.Replicas = &to
	annotateCurrent(rs, r.d, nextRevision(r.sets.old))
	annotateSizes(rs, r.d)
	created, err := r.kube.AppsV1().ReplicaSets(r.d.Namespace).Create(ctx, rs, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.resolveCollision(ctx, rs.Name, err)
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return err
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, err)
		if hasDeadline(r.d) {
			setCondition(&r.d.Status, apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionFalse,
				Reason: reasonReplicaSetFailed, Message: message}, time.Now())
		}
		r.env.Events.Event(r.before, v1.EventTypeWarning, reasonReplicaSetFailed, message)
		return err
	}
	if to > 0 {
		r.env.Events.Eventf(r.before, v1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", created.Name, to)
	}
	r.sets.current = created
	set(r.d, revisionAnnotation, strconv.FormatInt(revision(created), 10))
	if hasDeadline(r.d) {
		setCondition(&r.d.Status, apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionTrue,
			Reason: reasonReplicaSetCreated, Message: fmt.Sprintf("Created new replica set %q", created.Name)}, time.Now())
	}
	return nil
}

// resolveCollision finds out why the ReplicaSet to be created exists: it may
// be the right one, which the cache does not show yet, or one whose template
// has the same hash by accident. Then the next try uses another hash.
func (r *rollout) resolveCollision(ctx context.Context, name string, exists error) error {
	rs, err := r.kube.AppsV1().ReplicaSets(r.d.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if metav1.IsControlledBy(rs, r.d) && sameTemplate(&rs.Spec.Template, &r.d.Spec.Template) {
		r.sets.current = rs
		return r.updateCurrent(ctx)
	}
	count := int32(1)
	if r.d.Status.CollisionCount != nil {
		count = *r.d.Status.CollisionCount + 1
	}
	r.d.Status.CollisionCount = &count
	return exists
}

// updateCurrent brings the current ReplicaSet's annotations, revision and
// minReadySeconds up to date, and the Deployment's revision with it.
func (r *rollout) updateCurrent(ctx context.Context) error {
	if r.sets.current == nil {
		return nil
	}
	rs := r.sets.current.DeepCopy()
	changed := annotateCurrent(rs, r.d, nextRevision(r.sets.old))
	if rs.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		changed = true
	}
	if changed {
		updated, err := r.kube.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		r.sets.current = updated
	}
	set(r.d, revisionAnnotation, r.sets.current.Annotations[revisionAnnotation])
	if hasDeadline(r.d) && condition(&r.d.Status, apps.DeploymentProgressing) == nil {
		setCondition(&r.d.Status, apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionTrue,
			Reason: reasonReplicaSetFound, Message: fmt.Sprintf("Found new replica set %q", rs.Name)}, time.Now())
	}
	return nil
}

// resize gives ReplicaSets their sizes and notes the Deployment's in them.
func (r *rollout) resize(ctx context.Context, scalings ...scaling) error {
	for _, s := range scalings {
		from := size(s.rs)
		rs := s.rs.DeepCopy()
		rs.Spec.Replicas = &s.to
		if !annotateSizes(rs, r.d) && from == s.to {
			continue
		}
		updated, err := r.kube.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		r.replace(updated)
		direction := "up"
		if s.to < from {
			direction = "down"
		}
		if s.to != from {
			r.env.Events.Eventf(r.before, v1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, rs.Name, from, s.to)
		}
	}
	return nil
}

// replace puts a ReplicaSet that was written in the place of its old state.
func (r *rollout) replace(rs *apps.ReplicaSet) {
	if r.sets.current != nil && r.sets.current.UID == rs.UID {
		r.sets.current = rs
	}
	for i := range r.sets.old {
		if r.sets.old[i].UID == rs.UID {
			r.sets.old[i] = rs
		}
	}
}

// cleanUp deletes the ReplicaSets that the history has no room for.
func (r *rollout) cleanUp(ctx context.Context) error {
	for _, rs := range expired(r.d, r.sets.old) {
		err := r.kube.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &rs.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// report writes the status, and the revision in the Deployment's annotation,
// if either changed.
func (r *rollout) report(ctx context.Context, status apps.DeploymentStatus) error {
	r.d.Status = status
	if equality.Semantic.DeepEqual(r.d.Status, r.before.Status) && r.d.Annotations[revisionAnnotation] == r.before.Annotations[revisionAnnotation] {
		return nil
	}
	_, err := r.kube.AppsV1().Deployments(r.d.Namespace).UpdateStatus(ctx, r.d, metav1.UpdateOptions{})
	return err
}
