package deployment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/order"
)

// templateHash returns the value of the label pod-template-hash, which is also the suffix of
// a ReplicaSet's name. It must be the same as upstream's; otherwise all Deployments would be
// rolled out again after a migration.
func templateHash(template *v1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%v", dump.ForHash(*template))
	if collisions != nil {
		b := make([]byte, 8)
		binary.LittleEndian.PutUint32(b, uint32(*collisions))
		h.Write(b)
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// sameTemplate reports whether templates are equal except for the hash label.
func sameTemplate(a, b *v1.PodTemplateSpec) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	delete(x.Labels, apps.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, apps.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(x, y)
}

// sets holds the ReplicaSets of a Deployment. newRS has the Deployment's template, or is nil
// if there is no such ReplicaSet. oldRSs holds all others, oldest first.
type sets struct {
	newRS  *apps.ReplicaSet
	oldRSs []*apps.ReplicaSet
}

// classify returns the sets of a Deployment. The new ReplicaSet is the oldest with its
// template.
func classify(d *apps.Deployment, owned []*apps.ReplicaSet) sets {
	var s sets
	for _, rs := range slices.SortedFunc(slices.Values(owned), order.ByAge) {
		if s.newRS == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			s.newRS = rs
		} else {
			s.oldRSs = append(s.oldRSs, rs)
		}
	}
	return s
}

// all returns the old ReplicaSets followed by the new one.
func (s sets) all() []*apps.ReplicaSet {
	if s.newRS == nil {
		return slices.Clone(s.oldRSs)
	}
	return append(slices.Clone(s.oldRSs), s.newRS)
}

// active returns the ReplicaSets that are not scaled to zero.
func active(all []*apps.ReplicaSet) []*apps.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(all), func(rs *apps.ReplicaSet) bool { return replicas(rs) == 0 })
}

// replicas returns spec.replicas of a ReplicaSet, or 0 for nil.
func replicas(rs *apps.ReplicaSet) int32 {
	if rs == nil {
		return 0
	}
	return ptr.Deref(rs.Spec.Replicas, 1)
}

// desired returns spec.replicas of a Deployment.
func desired(d *apps.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// total returns the sum of a number of ReplicaSets, at most math.MaxInt32.
func total(all []*apps.ReplicaSet, number func(*apps.ReplicaSet) int32) int32 {
	sum := int64(0)
	for _, rs := range all {
		sum += int64(number(rs))
	}
	return int32(min(sum, math.MaxInt32))
}

func available(rs *apps.ReplicaSet) int32 { return rs.Status.AvailableReplicas }

// availableAfterScaleDown returns how many available pods a ReplicaSet has once it has deleted the
// pods above spec.replicas. It deletes unavailable pods first.
func availableAfterScaleDown(rs *apps.ReplicaSet) int32 { return min(available(rs), replicas(rs)) }

// podsIncludingTerminating returns how many pods a ReplicaSet has or is about to have. While it is scaled down,
// these are more than spec.replicas. A ReplicaSet that is being deleted deletes no pods, so the controller does
// not wait for it.
func podsIncludingTerminating(rs *apps.ReplicaSet) int32 {
	if rs.DeletionTimestamp != nil {
		return replicas(rs)
	}
	return max(replicas(rs), rs.Status.Replicas)
}

// allObserved reports whether all ReplicaSets have acted on their spec.replicas. Until then, their
// statuses do not say how many pods there are, as after a ReplicaSet was scaled down and up again.
func allObserved(s sets) bool {
	return !slices.ContainsFunc(s.all(), func(rs *apps.ReplicaSet) bool {
		return rs.DeletionTimestamp == nil && rs.Status.ObservedGeneration < rs.Generation
	})
}

// limits returns maxSurge and maxUnavailable as numbers of pods. For a rolling update, at
// least one is not zero unless no pods are desired. For Recreate, both are zero. The sum of desired
// and surge does not overflow.
func limits(d *apps.Deployment) (surge, unavailable int32) {
	if d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	zero := intstr.FromInt32(0)
	r := d.Spec.Strategy.RollingUpdate
	up, _ := intstr.GetScaledValueFromIntOrPercent(cmp.Or(r.MaxSurge, &zero), int(desired(d)), true)
	down, _ := intstr.GetScaledValueFromIntOrPercent(cmp.Or(r.MaxUnavailable, &zero), int(desired(d)), false)
	if up == 0 && down == 0 {
		down = 1
	}
	return int32(min(up, math.MaxInt32-int(desired(d)))), int32(min(down, int(desired(d))))
}

// newReplicaSet returns a new ReplicaSet for the template of a Deployment, with zero
// replicas.
func newReplicaSet(d *apps.Deployment) *apps.ReplicaSet {
	hash := templateHash(&d.Spec.Template, d.Status.CollisionCount)
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	return &apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            d.Name[:min(len(d.Name), validation.DNS1123SubdomainMaxLength-1-len(hash))] + "-" + hash,
			Namespace:       d.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)},
			Labels:          maps.Clone(template.Labels),
		},
		Spec: apps.ReplicaSetSpec{
			Replicas:        new(int32),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}
}

func withHash(labels map[string]string, hash string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[apps.DefaultDeploymentUniqueLabelKey] = hash
	return labels
}
