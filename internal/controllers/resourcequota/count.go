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

// tracked are the resources that a quota limits, and under which names.
func tracked(q *v1.ResourceQuota) map[schema.GroupResource][]v1.ResourceName {
	names := map[schema.GroupResource][]v1.ResourceName{}
	for name := range q.Spec.Hard {
		if gr, ok := quota.Tracked(name); ok {
			names[gr] = append(names[gr], name)
		}
	}
	return names
}

// count sums up under the given names what the objects of one resource take
// from a quota.
func count(q *v1.ResourceQuota, gr schema.GroupResource, names []v1.ResourceName, objects []any, now time.Time) v1.ResourceList {
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
		used := quota.Usage(gr, o, now)
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

// statusOf is a quota's status after a count: what is limited now, and what is
// used of it. What could not be counted stays as it was.
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

// same says whether two statuses are; one that was never written is not the
// same as one that is empty.
func same(a, b v1.ResourceQuotaStatus) bool {
	return (a.Hard == nil) == (b.Hard == nil) && (a.Used == nil) == (b.Used == nil) &&
		equality.Semantic.DeepEqual(a.Hard, b.Hard) && equality.Semantic.DeepEqual(a.Used, b.Used)
}
