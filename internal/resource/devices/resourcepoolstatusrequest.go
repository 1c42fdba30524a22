package devices

import (
	"context"
	"time"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
	"github.com/coracle-io/coracle/internal/resource/rule"
	"github.com/coracle-io/coracle/internal/resource/tag"
)

// partitionTypes is the feature of grouping devices by an attribute.
const partitionTypes = "DRAPartitionableDevicesType"

// Most of what the status of a request lists.
const (
	maxPools       = 1000
	maxConditions  = 10
	maxPartitions  = 32
	maxShareable   = 32
	maxPoolProblem = 256 // bytes
)

// ResourcePoolStatusRequests is the resource resourcepoolstatusrequests
// (KEP-5677), which is served on demand.
func ResourcePoolStatusRequests() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1alpha3.ResourcePoolStatusRequest, *resourcev1alpha3.ResourcePoolStatusRequest]{
		GroupVersion: resourcev1alpha3.SchemeGroupVersion,
		Kind:         "ResourcePoolStatusRequest",
		Plural:       "resourcepoolstatusrequests",
		Gate:         "DRAResourcePoolStatus",
		Cluster:      true,
		Default: func(r *resourcev1alpha3.ResourcePoolStatusRequest) {
			fill.Nil(&r.Spec.Limit, resourcev1alpha3.ResourcePoolStatusRequestLimitDefault)
		},
		CopyStatus: func(r, from *resourcev1alpha3.ResourcePoolStatusRequest) { r.Status = from.Status },
		PrepareForCreate: func(req *resource.Request, r *resourcev1alpha3.ResourcePoolStatusRequest) {
			if !req.Features.Enabled(partitionTypes) {
				r.Spec.DefaultPartitionTypeAttribute = nil
			}
		},
		PrepareForUpdate: func(req *resource.Request, r, old *resourcev1alpha3.ResourcePoolStatusRequest) {
			if old.Spec.DefaultPartitionTypeAttribute == nil && !req.Features.Enabled(partitionTypes) {
				r.Spec.DefaultPartitionTypeAttribute = nil
			}
		},
		Validate: func(req *resource.Request, r *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
			return validatePoolStatusRequest(req.Features, field.NewPath("spec"), &r.Spec)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, r, old *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
			return tag.Immutable(tag.Update(), field.NewPath("spec"), &r.Spec, &old.Spec)
		},
		ValidateStatus: func(_ *resource.Request, r, old *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
			p := field.NewPath("status")
			if old.Status != nil {
				return rule.Immutable(p, r.Status, old.Status)
			}
			return validatePoolStatus(p, r.Status)
		},
		ForbidUnconditionalUpdate: true,
		Columns:                   []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
		Row: func(r *resourcev1alpha3.ResourcePoolStatusRequest, now time.Time) []any {
			return []any{r.Name, resource.Age(r.CreationTimestamp, now)}
		},
	})
}

// driverName is the rule of a driver's name, which may have upper case.
func driverName(ctx context.Context, op tag.Operation, p *field.Path, name, old *string) field.ErrorList {
	return validate.LongNameCaseless(ctx, op, p, name, old) //nolint:staticcheck // what the API promised of these names
}

func validatePoolStatusRequest(features *feature.Set, p *field.Path, s *resourcev1alpha3.ResourcePoolStatusRequestSpec) field.ErrorList {
	op := tag.Create()
	errs := tag.Value(op, p.Child("driver"), &s.Driver, nil, tag.Required, driverName)
	errs = append(errs, tag.Pointer(op, p.Child("poolName"), s.PoolName, nil, tag.Optional, validate.ResourcePoolName)...)
	errs = append(errs, tag.Pointer(op, p.Child("limit"), s.Limit, nil, tag.Optional,
		tag.Min[int32](1), tag.Max(resourcev1alpha3.ResourcePoolStatusRequestLimitMax))...)
	return append(errs, tag.Pointer(op, p.Child("defaultPartitionTypeAttribute"), s.DefaultPartitionTypeAttribute, nil,
		tag.If(features.Enabled(partitionTypes)), validate.ResourceFullyQualifiedName)...)
}

func validatePoolStatus(p *field.Path, s *resourcev1alpha3.ResourcePoolStatusRequestStatus) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := count(p.Child("poolCount"), s.PoolCount, tag.Required, 0)
	if n := len(s.Pools); n > maxPools {
		errs = append(errs, field.TooMany(p.Child("pools"), n, maxPools))
	} else {
		for i := range s.Pools {
			errs = append(errs, validateReportedPool(p.Child("pools").Index(i), &s.Pools[i])...)
		}
	}
	if n := len(s.Conditions); n > maxConditions {
		return append(errs, field.TooMany(p.Child("conditions"), n, maxConditions))
	}
	return append(errs, metav1validation.ValidateConditions(s.Conditions, p.Child("conditions"))...)
}

func count(p *field.Path, n *int32, presence tag.Presence, least int32) field.ErrorList {
	return tag.Pointer(tag.Create(), p, n, nil, presence, tag.Min(least))
}

func validateReportedPool(p *field.Path, s *resourcev1alpha3.PoolStatus) field.ErrorList {
	op := tag.Create()
	errs := tag.Value(op, p.Child("driver"), &s.Driver, nil, tag.Required, driverName)
	errs = append(errs, tag.Value(op, p.Child("poolName"), &s.PoolName, nil, tag.Required, validate.ResourcePoolName)...)
	errs = append(errs, tag.Value(op, p.Child("generation"), &s.Generation, nil, tag.Optional, tag.Min[int64](0))...)
	errs = append(errs, count(p.Child("resourceSliceCount"), s.ResourceSliceCount, tag.Optional, 1)...)
	errs = append(errs, count(p.Child("totalDevices"), s.TotalDevices, tag.Optional, 0)...)
	errs = append(errs, count(p.Child("allocatedDevices"), s.AllocatedDevices, tag.Optional, 0)...)
	errs = append(errs, count(p.Child("availableDevices"), s.AvailableDevices, tag.Optional, 0)...)
	errs = append(errs, count(p.Child("unavailableDevices"), s.UnavailableDevices, tag.Optional, 0)...)
	errs = append(errs, tag.Pointer(op, p.Child("nodeName"), s.NodeName, nil, tag.Optional, validate.LongName)...)
	errs = append(errs, tag.Pointer(op, p.Child("validationError"), s.ValidationError, nil, tag.Optional, tag.MaxBytes(maxPoolProblem))...)
	errs = append(errs, tag.List(op, p.Child("partitionSummary"), s.PartitionSummary, nil,
		func(t *resourcev1alpha3.PartitionTypeStatus) string { return t.Attribute + "\x00" + t.Type }, maxPartitions,
		func(op tag.Operation, p *field.Path, t, _ *resourcev1alpha3.PartitionTypeStatus) field.ErrorList {
			errs := tag.Value(op, p.Child("attribute"), &t.Attribute, nil, tag.Required)
			errs = append(errs, tag.Value(op, p.Child("type"), &t.Type, nil, tag.Required)...)
			errs = append(errs, count(p.Child("total"), t.Total, tag.Required, 0)...)
			return append(errs, count(p.Child("allocatable"), t.Allocatable, tag.Required, 0)...)
		})...)
	return append(errs, validateShareable(p.Child("shareableSummary"), s.ShareableSummary)...)
}

func validateShareable(p *field.Path, s *resourcev1alpha3.ShareableSummaryStatus) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := count(p.Child("fullyAvailableDevices"), s.FullyAvailableDevices, tag.Required, 0)
	errs = append(errs, count(p.Child("partiallyAvailableDevices"), s.PartiallyAvailableDevices, tag.Required, 0)...)
	capacity := p.Child("capacity")
	if n := len(s.Capacity); n > maxShareable {
		return append(errs, field.TooMany(capacity, n, maxShareable))
	}
	for i := range s.Capacity {
		c, at := &s.Capacity[i], capacity.Index(i)
		errs = append(errs, tag.Value(tag.Create(), at.Child("name"), &c.Name, nil, tag.Required)...)
		errs = append(errs, tag.Pointer(tag.Create(), at.Child("total"), c.Total, nil, tag.Required)...)
		errs = append(errs, tag.Pointer(tag.Create(), at.Child("consumed"), c.Consumed, nil, tag.Required)...)
		errs = append(errs, tag.Pointer(tag.Create(), at.Child("available"), c.Available, nil, tag.Required)...)
	}
	return errs
}
