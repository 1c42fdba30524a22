package deployment

import (
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of Deployments and their ReplicaSets.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

// maxHistoryLength is the maximum length of the revision-history annotation, in bytes.
const maxHistoryLength = 2000

// copied reports whether an annotation of a Deployment is copied to its ReplicaSets.
func copied(annotation string) bool {
	switch annotation {
	case v1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation, desiredAnnotation, maxAnnotation,
		apps.DeprecatedRollbackTo, "deprecated.daemonset.template.generation":
		return false
	}
	return true
}

// revision returns the revision of an object, or 0 if it has none.
func revision(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nextRevision returns the highest revision of the old ReplicaSets plus one.
func nextRevision(old []*apps.ReplicaSet) int64 {
	n := int64(0)
	for _, rs := range old {
		n = max(n, revision(rs))
	}
	return n + 1
}

// numberAnnotation returns the number in an annotation. It returns false if there is none, or if it is
// negative or too large for a number of replicas.
func numberAnnotation(rs *apps.ReplicaSet, name string) (int32, bool) {
	n, err := strconv.ParseUint(rs.Annotations[name], 10, 31)
	return int32(n), err == nil
}

// set sets an annotation and reports whether it has changed.
func set(o metav1.Object, name, value string) bool {
	annotations := o.GetAnnotations()
	if have, ok := annotations[name]; ok && have == value {
		return false
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	o.SetAnnotations(annotations)
	return true
}

// annotateSizes sets the annotations desired-replicas and max-replicas of a ReplicaSet and
// reports whether they have changed.
func annotateSizes(rs *apps.ReplicaSet, d *apps.Deployment) bool {
	surge, _ := limits(d)
	a := set(rs, desiredAnnotation, strconv.Itoa(int(desired(d))))
	b := set(rs, maxAnnotation, strconv.Itoa(int(desired(d)+surge)))
	return a || b
}

// annotateNewReplicaSet copies the annotations of a Deployment to its new ReplicaSet and sets
// its revision to next if it is lower. It reports whether anything has changed.
func annotateNewReplicaSet(rs *apps.ReplicaSet, d *apps.Deployment, next int64) bool {
	changed := false
	for name, value := range d.Annotations {
		if copied(name) {
			changed = set(rs, name, value) || changed
		}
	}
	before := revision(rs)
	if before >= next {
		return changed
	}
	if before > 0 {
		history := rs.Annotations[historyAnnotation]
		if history == "" {
			history = strconv.FormatInt(before, 10)
		} else {
			history += "," + strconv.FormatInt(before, 10)
		}
		for len(history) > maxHistoryLength {
			_, history, _ = strings.Cut(history, ",")
		}
		set(rs, historyAnnotation, history)
	}
	set(rs, revisionAnnotation, strconv.FormatInt(next, 10))
	return true
}
