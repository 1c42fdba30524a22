package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the events about a rollback.
const (
	reasonRolledBack        = "DeploymentRollback"
	reasonRevisionNotFound  = "DeploymentRollbackRevisionNotFound"
	reasonTemplateUnchanged = "DeploymentRollbackTemplateUnchanged"
)

// rollbackTo returns the revision to which the annotation of the former field spec.rollbackTo asks to
// roll back; 0 is the one before the current. It returns false if the annotation is absent or is no
// number.
func rollbackTo(d *apps.Deployment) (to int64, asked bool) {
	to, err := strconv.ParseInt(d.Annotations[apps.DeprecatedRollbackTo], 10, 64)
	return to, err == nil
}

// rollBack gives the Deployment the template and the annotations of a revision, and removes the
// annotation that asked for it. The update of the Deployment leads to the sync that rolls it out.
func (r *rollout) rollBack(ctx context.Context, to int64) error {
	if err := r.ensureNewReplicaSet(ctx); err != nil {
		return errors.Join(err, r.updateStatus(ctx, r.d.Status))
	}
	all := r.sets.all()
	if to == 0 {
		to = lastRevision(all)
	}
	at := slices.IndexFunc(all, func(rs *apps.ReplicaSet) bool { return revision(rs) == to })
	eventType, reason, message := v1.EventTypeWarning, reasonRevisionNotFound, "Unable to find the revision to rollback to."
	switch {
	case to == 0:
		message = "Unable to find last revision."
	case at < 0:
	case sameTemplate(&all[at].Spec.Template, &r.d.Spec.Template):
		reason, message = reasonTemplateUnchanged, fmt.Sprintf("The rollback revision contains the same template as current deployment %q", r.d.Name)
	default:
		restore(r.d, all[at])
		eventType, reason, message = v1.EventTypeNormal, reasonRolledBack, fmt.Sprintf("Rolled back deployment %q to revision %d", r.d.Name, to)
	}
	delete(r.d.Annotations, apps.DeprecatedRollbackTo)
	if _, err := r.kube.AppsV1().Deployments(r.d.Namespace).Update(ctx, r.d, metav1.UpdateOptions{}); err != nil {
		return err
	}
	r.env.Events.Event(r.before, eventType, reason, message)
	return nil
}

// lastRevision returns the second highest revision of the ReplicaSets, or 0 if there is none.
func lastRevision(all []*apps.ReplicaSet) int64 {
	var highest, last int64
	for _, rs := range all {
		switch n := revision(rs); {
		case n >= highest:
			highest, last = n, highest
		case n > last:
			last = n
		}
	}
	return last
}

// restore gives a Deployment the template of a ReplicaSet, and the annotations that were copied to it.
// The ReplicaSet would get those of the Deployment otherwise.
func restore(d *apps.Deployment, rs *apps.ReplicaSet) {
	d.Spec.Template = *rs.Spec.Template.DeepCopy()
	delete(d.Spec.Template.Labels, apps.DefaultDeploymentUniqueLabelKey)
	annotations := map[string]string{}
	for name, value := range d.Annotations {
		if !copied(name) {
			annotations[name] = value
		}
	}
	for name, value := range rs.Annotations {
		if copied(name) {
			annotations[name] = value
		}
	}
	d.Annotations = annotations
}
