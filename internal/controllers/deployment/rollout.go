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
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/podquery"
)

// rollout is one sync of one Deployment.
type rollout struct {
	*deployments
	// before is the cached Deployment. d is a copy with the changed annotations and status.
	before, d *apps.Deployment
	sets      sets
}

// run applies the next step. requeueAfter is the time until the next sync without an event, or
// 0.
func (r *rollout) run(ctx context.Context) (requeueAfter time.Duration, err error) {
	if r.d.DeletionTimestamp != nil {
		return 0, r.updateStatus(ctx, summarize(r.d, r.sets, time.Now()))
	}
	setPaused(r.d, time.Now())
	if to, asked := rollbackTo(r.d); asked && !r.d.Spec.Paused {
		return 0, r.rollBack(ctx, to)
	}
	switch {
	case r.d.Spec.Paused || needsRescale(r.d, r.sets):
		if err := r.updateNewReplicaSet(ctx); err != nil {
			return 0, err
		}
		if err := r.scale(ctx, rescale(r.d, r.sets)...); err != nil {
			return 0, err
		}
		if r.d.Spec.Paused {
			err = r.cleanUp(ctx)
		}
		return 0, errors.Join(err, r.updateStatus(ctx, summarize(r.d, r.sets, time.Now())))
	case r.d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType:
		err = r.recreate(ctx)
	default:
		err = r.rollingUpdate(ctx)
	}
	if err != nil {
		// The status contains the conditions for the failure.
		return 0, errors.Join(err, r.updateStatus(ctx, r.d.Status))
	}
	now := time.Now()
	status, requeueAfter := rolloutStatus(r.d, r.sets, func(progressed time.Time) time.Time {
		return r.progress.At(cache.MetaObjectToName(r.d), progressed, now)
	}, now)
	if complete(r.d, &r.d.Status) {
		err = r.cleanUp(ctx)
	}
	return requeueAfter, errors.Join(err, r.updateStatus(ctx, status))
}

// rollingUpdate applies the next step of a rolling update. It scales up the new ReplicaSet
// if possible, otherwise it scales down the old ones.
func (r *rollout) rollingUpdate(ctx context.Context) error {
	if err := r.ensureNewReplicaSet(ctx); err != nil {
		return err
	}
	if to := newReplicas(r.d, r.sets); to != replicas(r.sets.newRS) {
		return r.scale(ctx, scaling{r.sets.newRS, to})
	}
	return r.scale(ctx, scaleDownOld(r.d, r.sets)...)
}

// recreate applies the next step of a Recreate. All old pods must be gone before the first new
// pod is created.
func (r *rollout) recreate(ctx context.Context) error {
	if err := r.updateNewReplicaSet(ctx); err != nil {
		return err
	}
	var stop []scaling
	for _, rs := range active(r.sets.oldRSs) {
		stop = append(stop, scaling{rs, 0})
	}
	if len(stop) > 0 {
		return r.scale(ctx, stop...)
	}
	running, err := r.oldPodsRunning()
	if err != nil || running {
		return err
	}
	if err := r.ensureNewReplicaSet(ctx); err != nil {
		return err
	}
	return r.scale(ctx, scaling{r.sets.newRS, desired(r.d)})
}

// oldPodsRunning reports whether an old ReplicaSet has unfinished pods. A ReplicaSet that has
// not acted on its size yet, or that counts pods, may have pods that the cache does not show.
func (r *rollout) oldPodsRunning() (bool, error) {
	if !allObserved(sets{oldRSs: r.sets.oldRSs}) {
		return true, nil
	}
	for _, rs := range r.sets.oldRSs {
		if rs.DeletionTimestamp == nil && rs.Status.Replicas > 0 {
			return true, nil
		}
		owned, err := workload.Controlled[*v1.Pod](r.pods, rs.UID)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(owned, func(p *v1.Pod) bool { return !podquery.IsFinished(p) }) {
			return true, nil
		}
	}
	return false, nil
}

// ensureNewReplicaSet creates the new ReplicaSet if it does not exist, and otherwise updates it.
func (r *rollout) ensureNewReplicaSet(ctx context.Context) error {
	if r.sets.newRS != nil {
		return r.updateNewReplicaSet(ctx)
	}
	rs := newReplicaSet(r.d)
	to := newReplicas(r.d, sets{newRS: rs, oldRSs: r.sets.oldRSs})
	rs.Spec.Replicas = &to
	annotateNewReplicaSet(rs, r.d, nextRevision(r.sets.oldRSs))
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
	r.writes.wrote(cache.MetaObjectToName(r.d), created)
	r.sets.newRS = created
	set(r.d, revisionAnnotation, strconv.FormatInt(revision(created), 10))
	if hasDeadline(r.d) {
		setCondition(&r.d.Status, apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionTrue,
			Reason: reasonReplicaSetCreated, Message: fmt.Sprintf("Created new replica set %q", created.Name)}, time.Now())
	}
	return nil
}

// resolveCollision handles a ReplicaSet that already exists. It may be the new one, which
// the cache does not show yet. Otherwise its template has the same hash by accident, and the
// next sync uses another hash.
func (r *rollout) resolveCollision(ctx context.Context, name string, exists error) error {
	rs, err := r.kube.AppsV1().ReplicaSets(r.d.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if metav1.IsControlledBy(rs, r.d) && sameTemplate(&rs.Spec.Template, &r.d.Spec.Template) {
		r.sets.newRS = rs
		return r.updateNewReplicaSet(ctx)
	}
	count := int32(1)
	if r.d.Status.CollisionCount != nil {
		count = *r.d.Status.CollisionCount + 1
	}
	r.d.Status.CollisionCount = &count
	return exists
}

// updateNewReplicaSet updates the annotations, revision and minReadySeconds of the new
// ReplicaSet, and the revision of the Deployment.
func (r *rollout) updateNewReplicaSet(ctx context.Context) error {
	if r.sets.newRS == nil {
		return nil
	}
	rs := r.sets.newRS.DeepCopy()
	changed := annotateNewReplicaSet(rs, r.d, nextRevision(r.sets.oldRSs))
	if rs.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		changed = true
	}
	if changed {
		updated, err := r.kube.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		r.writes.wrote(cache.MetaObjectToName(r.d), updated)
		r.sets.newRS = updated
	}
	set(r.d, revisionAnnotation, r.sets.newRS.Annotations[revisionAnnotation])
	if hasDeadline(r.d) && condition(&r.d.Status, apps.DeploymentProgressing) == nil {
		setCondition(&r.d.Status, apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionTrue,
			Reason: reasonReplicaSetFound, Message: fmt.Sprintf("Found new replica set %q", rs.Name)}, time.Now())
	}
	return nil
}

// scale sets spec.replicas and the annotations about it of ReplicaSets.
func (r *rollout) scale(ctx context.Context, scalings ...scaling) error {
	for _, s := range scalings {
		from := replicas(s.rs)
		rs := s.rs.DeepCopy()
		rs.Spec.Replicas = &s.to
		if !annotateSizes(rs, r.d) && from == s.to {
			continue
		}
		updated, err := r.kube.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		r.writes.wrote(cache.MetaObjectToName(r.d), updated)
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

// replace replaces a ReplicaSet in sets by its updated version.
func (r *rollout) replace(rs *apps.ReplicaSet) {
	if r.sets.newRS != nil && r.sets.newRS.UID == rs.UID {
		r.sets.newRS = rs
	}
	for i := range r.sets.oldRSs {
		if r.sets.oldRSs[i].UID == rs.UID {
			r.sets.oldRSs[i] = rs
		}
	}
}

// cleanUp deletes old ReplicaSets above the history limit.
func (r *rollout) cleanUp(ctx context.Context) error {
	var errs []error
	for _, rs := range expired(r.d, r.sets.oldRSs) {
		err := r.kube.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{
			// It may have been scaled up by another writer.
			Preconditions: &metav1.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion},
		})
		errs = append(errs, controller.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

// updateStatus writes the status and the revision annotation if they have changed.
func (r *rollout) updateStatus(ctx context.Context, status apps.DeploymentStatus) error {
	r.d.Status = status
	if equality.Semantic.DeepEqual(r.d.Status, r.before.Status) && r.d.Annotations[revisionAnnotation] == r.before.Annotations[revisionAnnotation] {
		return nil
	}
	_, err := r.kube.AppsV1().Deployments(r.d.Namespace).UpdateStatus(ctx, r.d, metav1.UpdateOptions{})
	return err
}
