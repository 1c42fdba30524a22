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
	"k8s.io/utils/dump"
)

// templateHash is the value of the label pod-template-hash and the end of a
// ReplicaSet's name. It must stay upstream's, or a cluster that is taken over
// would roll out every Deployment anew.
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

// sameTemplate compares templates, leaving out the hash label.
func sameTemplate(a, b *v1.PodTemplateSpec) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	delete(x.Labels, apps.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, apps.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(x, y)
}

// sets are the ReplicaSets of one Deployment. current has the Deployment's
// template; it is nil if there is none yet. old are all others, oldest first.
type sets struct {
	current *apps.ReplicaSet
	old     []*apps.ReplicaSet
}

// classify finds the current one among a Deployment's ReplicaSets: the oldest
// with its template.
func classify(d *apps.Deployment, owned []*apps.ReplicaSet) sets {
	var s sets
	for _, rs := range slices.SortedFunc(slices.Values(owned), compareAge) {
		if s.current == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			s.current = rs
		} else {
			s.old = append(s.old, rs)
		}
	}
	return s
}

func compareAge(a, b *apps.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// all are the old ones and the current one.
func (s sets) all() []*apps.ReplicaSet {
	if s.current == nil {
		return slices.Clone(s.old)
	}
	return append(slices.Clone(s.old), s.current)
}

// active are those that are not scaled to zero.
func active(all []*apps.ReplicaSet) []*apps.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(all), func(rs *apps.ReplicaSet) bool { return size(rs) == 0 })
}

// size is how many replicas a ReplicaSet is asked for.
func size(rs *apps.ReplicaSet) int32 {
	if rs == nil {
		return 0
	}
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

func wanted(d *apps.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// total sums a number over ReplicaSets. It does not go above the largest.
func total(all []*apps.ReplicaSet, number func(*apps.ReplicaSet) int32) int32 {
	sum := int64(0)
	for _, rs := range all {
		sum += int64(number(rs))
	}
	return int32(min(sum, math.MaxInt32))
}

func available(rs *apps.ReplicaSet) int32 { return rs.Status.AvailableReplicas }

// limits resolves how many pods above the wanted number there may be and how
// many below it may be missing. At least one of the two is not zero for a
// rolling update; for Recreate both are. Wanted and surge together never
// overflow.
func limits(d *apps.Deployment) (surge, unavailable int32) {
	if d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil || wanted(d) == 0 {
		return 0, 0
	}
	zero := intstr.FromInt32(0)
	r := d.Spec.Strategy.RollingUpdate
	up, _ := intstr.GetScaledValueFromIntOrPercent(cmp.Or(r.MaxSurge, &zero), int(wanted(d)), true)
	down, _ := intstr.GetScaledValueFromIntOrPercent(cmp.Or(r.MaxUnavailable, &zero), int(wanted(d)), false)
	if up == 0 && down == 0 {
		down = 1
	}
	return int32(min(up, math.MaxInt32-int(wanted(d)))), int32(min(down, int(wanted(d))))
}

// newReplicaSet is a Deployment's ReplicaSet for its present template, with
// no replicas yet.
func newReplicaSet(d *apps.Deployment) *apps.ReplicaSet {
	hash := templateHash(&d.Spec.Template, d.Status.CollisionCount)
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	return &apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            d.Name + "-" + hash,
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
