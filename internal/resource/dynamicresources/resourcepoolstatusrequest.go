package dynamicresources

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
	"github.com/coracle-io/coracle/internal/resource/declarative"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// partitionTypes is the feature that groups devices by an attribute.
const partitionTypes = feature.DRAPartitionableDevicesType

// The maximum lengths of what the status of a request has.
const (
	maxPools       = 1000
	maxConditions  = 10
	maxPartitions  = 32
	maxShareable   = 32
	maxPoolProblem = 256 // bytes
)

// ResourcePoolStatusRequests is the resource resourcepoolstatusrequests
// (KEP-5677), which is not served by default.
func ResourcePoolStatusRequests() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1alpha3.ResourcePoolStatusRequest, *resourcev1alpha3.ResourcePoolStatusRequest]{
		GroupVersion: resourcev1alpha3.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ResourcePoolStatusRequest", Plural: "resourcepoolstatusrequests"},
		Cluster:      true,
		Gate:         feature.DRAResourcePoolStatus,
		Default: func(r *resourcev1alpha3.ResourcePoolStatusRequest) {
			defaults.Nil(&r.Spec.Limit, resourcev1alpha3.ResourcePoolStatusRequestLimitDefault)
		},
		Status: resource.Status[*resourcev1alpha3.ResourcePoolStatusRequest]{
			Copy:          func(r, from *resourcev1alpha3.ResourcePoolStatusRequest) { r.Status = from.Status },
			KeepsMetadata: true,
			Validate: func(_ *resource.RequestContext, r, old *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
				p := field.NewPath("status")
				if old.Status != nil {
					return validators.Immutable(p, r.Status, old.Status)
				}
				return validatePoolStatus(p, r.Status)
			},
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*resourcev1alpha3.ResourcePoolStatusRequest]{
			PrepareForCreate: func(req *resource.RequestContext, r *resourcev1alpha3.ResourcePoolStatusRequest) {
				if !req.Features.Enabled(partitionTypes) {
					r.Spec.DefaultPartitionTypeAttribute = nil
				}
			},
			PrepareForUpdate: func(req *resource.RequestContext, r, old *resourcev1alpha3.ResourcePoolStatusRequest) {
				if old.Spec.DefaultPartitionTypeAttribute == nil && !req.Features.Enabled(partitionTypes) {
					r.Spec.DefaultPartitionTypeAttribute = nil
				}
			},
			Validate: func(req *resource.RequestContext, r *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
				return validatePoolStatusRequest(req.Features, field.NewPath("spec"), &r.Spec)
			},
			ValidateUpdate: func(_ *resource.RequestContext, r, old *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
				return declarative.Immutable(declarative.Update(), field.NewPath("spec"), &r.Spec, &old.Spec)
			},
			ForbidUnconditionalUpdate: true,
		},
		Table: resource.Table[*resourcev1alpha3.ResourcePoolStatusRequest]{
			Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
			Row: func(r *resourcev1alpha3.ResourcePoolStatusRequest, now time.Time) []any {
				return []any{r.Name, resource.Age(r.CreationTimestamp, now)}
			},
		},
	})
}

// driverName is the rule for a driver's name, which can have capitals.
func driverName(ctx context.Context, op declarative.Operation, p *field.Path, name, old *string) field.ErrorList {
	return validate.LongNameCaseless(ctx, op, p, name, old) //nolint:staticcheck // the API promises this form
}

func validatePoolStatusRequest(features *feature.Set, p *field.Path, s *resourcev1alpha3.ResourcePoolStatusRequestSpec) field.ErrorList {
	op := declarative.Create()
	errs := declarative.Value(op, p.Child("driver"), &s.Driver, nil, declarative.Required, driverName)
	errs = append(errs, declarative.Pointer(op, p.Child("poolName"), s.PoolName, nil, declarative.Optional, validate.ResourcePoolName)...)
	errs = append(errs, declarative.Pointer(op, p.Child("limit"), s.Limit, nil, declarative.Optional,
		declarative.Min[int32](1), declarative.Max(resourcev1alpha3.ResourcePoolStatusRequestLimitMax))...)
	return append(errs, declarative.Pointer(op, p.Child("defaultPartitionTypeAttribute"), s.DefaultPartitionTypeAttribute, nil,
		declarative.If(features.Enabled(partitionTypes)), validate.ResourceFullyQualifiedName)...)
}

func validatePoolStatus(p *field.Path, s *resourcev1alpha3.ResourcePoolStatusRequestStatus) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := count(p.Child("poolCount"), s.PoolCount, declarative.Required, 0)
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

func count(p *field.Path, n *int32, presence declarative.Presence, least int32) field.ErrorList {
	return declarative.Pointer(declarative.Create(), p, n, nil, presence, declarative.Min(least))
}

func validateReportedPool(p *field.Path, s *resourcev1alpha3.PoolStatus) field.ErrorList {
	op := declarative.Create()
	errs := declarative.Value(op, p.Child("driver"), &s.Driver, nil, declarative.Required, driverName)
	errs = append(errs, declarative.Value(op, p.Child("poolName"), &s.PoolName, nil, declarative.Required, validate.ResourcePoolName)...)
	errs = append(errs, declarative.Value(op, p.Child("generation"), &s.Generation, nil, declarative.Optional, declarative.Min[int64](0))...)
	errs = append(errs, count(p.Child("resourceSliceCount"), s.ResourceSliceCount, declarative.Optional, 1)...)
	errs = append(errs, count(p.Child("totalDevices"), s.TotalDevices, declarative.Optional, 0)...)
	errs = append(errs, count(p.Child("allocatedDevices"), s.AllocatedDevices, declarative.Optional, 0)...)
	errs = append(errs, count(p.Child("availableDevices"), s.AvailableDevices, declarative.Optional, 0)...)
	errs = append(errs, count(p.Child("unavailableDevices"), s.UnavailableDevices, declarative.Optional, 0)...)
	errs = append(errs, declarative.Pointer(op, p.Child("nodeName"), s.NodeName, nil, declarative.Optional, validate.LongName)...)
	errs = append(errs, declarative.Pointer(op, p.Child("validationError"), s.ValidationError, nil, declarative.Optional, declarative.MaxBytes(maxPoolProblem))...)
	errs = append(errs, declarative.List(op, p.Child("partitionSummary"), s.PartitionSummary, nil,
		func(t *resourcev1alpha3.PartitionTypeStatus) string { return t.Attribute + "\x00" + t.Type }, maxPartitions,
		func(op declarative.Operation, p *field.Path, t, _ *resourcev1alpha3.PartitionTypeStatus) field.ErrorList {
			errs := declarative.Value(op, p.Child("attribute"), &t.Attribute, nil, declarative.Required)
			errs = append(errs, declarative.Value(op, p.Child("type"), &t.Type, nil, declarative.Required)...)
			errs = append(errs, count(p.Child("total"), t.Total, declarative.Required, 0)...)
			return append(errs, count(p.Child("allocatable"), t.Allocatable, declarative.Required, 0)...)
		})...)
	return append(errs, validateShareable(p.Child("shareableSummary"), s.ShareableSummary)...)
}

func validateShareable(p *field.Path, s *resourcev1alpha3.ShareableSummaryStatus) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := count(p.Child("fullyAvailableDevices"), s.FullyAvailableDevices, declarative.Required, 0)
	errs = append(errs, count(p.Child("partiallyAvailableDevices"), s.PartiallyAvailableDevices, declarative.Required, 0)...)
	capacity := p.Child("capacity")
	if n := len(s.Capacity); n > maxShareable {
		return append(errs, field.TooMany(capacity, n, maxShareable))
	}
	for i := range s.Capacity {
		c, at := &s.Capacity[i], capacity.Index(i)
		errs = append(errs, declarative.Value(declarative.Create(), at.Child("name"), &c.Name, nil, declarative.Required)...)
		errs = append(errs, declarative.Pointer(declarative.Create(), at.Child("total"), c.Total, nil, declarative.Required)...)
		errs = append(errs, declarative.Pointer(declarative.Create(), at.Child("consumed"), c.Consumed, nil, declarative.Required)...)
		errs = append(errs, declarative.Pointer(declarative.Create(), at.Child("available"), c.Available, nil, declarative.Required)...)
	}
	return errs
}
