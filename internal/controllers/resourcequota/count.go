package resourcequota

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/quota"
)

// tracked returns the resources that a quota limits, with the names in spec.hard
// that limit each.
func tracked(q *v1.ResourceQuota) map[schema.GroupResource][]v1.ResourceName {
	names := map[schema.GroupResource][]v1.ResourceName{}
	for name := range q.Spec.Hard {
		for _, gr := range quota.Tracked(name) {
			names[gr] = append(names[gr], name)
		}
	}
	return names
}

// needs adds the resources on whose objects the usage of others depends.
func needs(resources map[schema.GroupResource]bool) {
	if resources[quota.ResourceClaims] {
		resources[quota.DeviceClasses], resources[quota.Pods] = true, true
	}
}

// count returns the usage of a quota by objects of one resource, for the given
// names.
func count(q *v1.ResourceQuota, gr schema.GroupResource, names []v1.ResourceName, objects []any, now time.Time, find quota.Lookup) v1.ResourceList {
	sum := v1.ResourceList{}
	for _, name := range names {
		sum[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	if !slices.Contains([]schema.GroupResource{quota.Pods, quota.Services, quota.Claims, quota.ResourceClaims}, gr) {
		if !quota.Scoped(q) {
			for _, name := range names {
				sum[name] = *resource.NewQuantity(int64(len(objects)), resource.DecimalSI)
			}
		}
		return sum
	}
	for _, o := range objects {
		if !quota.Selects(q, o) {
			continue
		}
		used := quota.Usage(gr, o, now, find)
		for _, name := range names {
			if amount, ok := used[name]; ok {
				total := sum[name]
				total.Add(amount)
				sum[name] = total
			}
		}
	}
	return sum
}

// statusOf returns the status of a quota with the counted usage. Usage that could
// not be counted keeps its previous value.
func statusOf(q *v1.ResourceQuota, counted v1.ResourceList) v1.ResourceQuotaStatus {
	status := v1.ResourceQuotaStatus{Hard: q.Spec.Hard.DeepCopy(), Used: v1.ResourceList{}}
	if status.Hard == nil {
		status.Hard = v1.ResourceList{}
	}
	for name := range q.Spec.Hard {
		if amount, ok := counted[name]; ok {
			status.Used[name] = amount
		} else if amount, ok := q.Status.Used[name]; ok {
			status.Used[name] = amount
		}
	}
	return status
}

// equal reports whether two statuses are equal. A status that was never written
// is not equal to an empty one.
func equal(a, b v1.ResourceQuotaStatus) bool {
	return (a.Hard == nil) == (b.Hard == nil) && (a.Used == nil) == (b.Used == nil) &&
		equality.Semantic.DeepEqual(a.Hard, b.Hard) && equality.Semantic.DeepEqual(a.Used, b.Used)
}
