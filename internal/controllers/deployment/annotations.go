package deployment

import (
	"math"
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

// historyLength bounds the revision-history annotation, in bytes.
const historyLength = 2000

// notCopied are the annotations that belong to one object alone.
var notCopied = map[string]bool{
	v1.LastAppliedConfigAnnotation:             true,
	revisionAnnotation:                         true,
	historyAnnotation:                          true,
	desiredAnnotation:                          true,
	maxAnnotation:                              true,
	apps.DeprecatedRollbackTo:                  true,
	"deprecated.daemonset.template.generation": true,
}

// revision is an object's revision, 0 if it has none.
func revision(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nextRevision is one more than any old ReplicaSet has.
func nextRevision(old []*apps.ReplicaSet) int64 {
	n := int64(0)
	for _, rs := range old {
		n = max(n, revision(rs))
	}
	return n + 1
}

func numberAnnotation(rs *apps.ReplicaSet, name string) (int32, bool) {
	n, err := strconv.ParseInt(rs.Annotations[name], 10, 32)
	if err != nil || n > math.MaxInt32 {
		return 0, false
	}
	return int32(n), true
}

// set sets an annotation and reports whether that changed anything.
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

// annotateSizes notes in a ReplicaSet how many pods its Deployment has.
func annotateSizes(rs *apps.ReplicaSet, d *apps.Deployment) bool {
	surge, _ := limits(d)
	a := set(rs, desiredAnnotation, strconv.Itoa(int(wanted(d))))
	b := set(rs, maxAnnotation, strconv.Itoa(int(wanted(d)+surge)))
	return a || b
}

// annotateCurrent copies a Deployment's annotations to its current ReplicaSet
// and raises its revision to at least next. It reports whether that changed
// anything.
func annotateCurrent(rs *apps.ReplicaSet, d *apps.Deployment, next int64) bool {
	changed := false
	for name, value := range d.Annotations {
		if !notCopied[name] {
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
		for len(history) > historyLength {
			_, history, _ = strings.Cut(history, ",")
		}
		set(rs, historyAnnotation, history)
	}
	set(rs, revisionAnnotation, strconv.FormatInt(next, 10))
	return true
}
