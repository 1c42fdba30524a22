package dynamicresources

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// ResourceClaims is the resource resourceclaims.
func ResourceClaims() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.ResourceClaim, *resourcev1.ResourceClaim]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ResourceClaim", Plural: "resourceclaims"},
		Default:      func(c *resourcev1.ResourceClaim) { defaultClaim(&c.Spec) },
		Status: resource.Status[*resourcev1.ResourceClaim]{
			Copy:          func(c, from *resourcev1.ResourceClaim) { c.Status = from.Status },
			KeepsMetadata: true,
			Prepare: func(r *resource.RequestContext, c, old *resourcev1.ResourceClaim) {
				dropReleasedDevices(r, c, old)
				dropFromStatus(r.Features, c, old)
			},
			Validate: func(r *resource.RequestContext, c, old *resourcev1.ResourceClaim) field.ErrorList {
				errs := validateAdminResults(r, c.Status.Allocation, old.Status.Allocation)
				errs = append(errs, validateStatusRights(r, &c.Status, &old.Status)...)
				return append(errs, validateClaimStatus(r, c, old)...)
			},
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*resourcev1.ResourceClaim]{
			PrepareForCreate: func(r *resource.RequestContext, c *resourcev1.ResourceClaim) {
				feature.Drop(r.Features, claimFields(), &c.Spec, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, c, old *resourcev1.ResourceClaim) {
				feature.Drop(r.Features, claimFields(), &c.Spec, &old.Spec)
			},
			Validate: func(r *resource.RequestContext, c *resourcev1.ResourceClaim) field.ErrorList {
				errs := validateAdminAccess(r, c.Spec.Devices.Requests)
				return append(errs, validateClaim(field.NewPath("spec"), &c.Spec, r.Features)...)
			},
			ValidateUpdate: func(r *resource.RequestContext, c, old *resourcev1.ResourceClaim) field.ErrorList {
				errs := resource.ValidateNamedMetadata(c, true, validation.NameIsDNSSubdomain)
				return append(errs, validateClaimUpdate(r, c, old)...)
			},
		},
		Table: resource.Table[*resourcev1.ResourceClaim]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("State", "string", "A summary of the current state (allocated, pending, reserved, etc.)."),
				resource.AgeColumn(),
			},
			Row: func(c *resourcev1.ResourceClaim, now time.Time) []any {
				return []any{c.Name, claimState(c), resource.Age(c.CreationTimestamp, now)}
			},
		},
	})
}

func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	if c.Status.Allocation != nil {
		states = append(states, "allocated")
	} else if c.DeletionTimestamp == nil {
		states = append(states, "pending")
	}
	if len(c.Status.ReservedFor) > 0 {
		states = append(states, "reserved")
	}
	return strings.Join(states, ",")
}

func defaultClaim(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		request := &s.Devices.Requests[i]
		if exactly := request.Exactly; exactly != nil {
			defaultAmount(&exactly.AllocationMode, &exactly.Count)
			defaultTolerations(exactly.Tolerations)
		}
		for k := range request.FirstAvailable {
			sub := &request.FirstAvailable[k]
			defaultAmount(&sub.AllocationMode, &sub.Count)
			defaultTolerations(sub.Tolerations)
		}
	}
}

func defaultAmount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	defaults.Zero(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		defaults.Zero(count, 1)
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		defaults.Zero(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}
