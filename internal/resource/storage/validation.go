package storage

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// Limits of parameters and of drivers' names, in bytes.
const (
	maxParameters     = 512
	maxParametersSize = 256 << 10
	maxDriverName     = 63
	maxNodeID         = 256
)

// Limits of the tokens that a driver asks for, in seconds.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

const minAllocatableUpdateSeconds = 10

// validateDriverName checks the name of a CSI driver.
func validateDriverName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(p, name, maxDriverName))
	}
	return append(errs, rule.Problems(p, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// validateProvisioner checks the name of what provisions volumes, in which
// case does not matter.
func validateProvisioner(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	lower := strings.ToLower(name)
	return rule.Problems(p, lower, utilvalidation.IsQualifiedName(lower))
}

func validateParameters(p *field.Path, parameters map[string]string, required bool) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, value := range parameters {
		if key == "" {
			errs = append(errs, field.Invalid(p, key, "field can not be empty."))
		}
		size += len(key) + len(value)
	}
	if len(parameters) > maxParameters {
		errs = append(errs, field.TooLong(p, "", maxParameters))
	}
	if size > maxParametersSize {
		errs = append(errs, field.TooLong(p, "", maxParametersSize))
	}
	if required && len(parameters) == 0 {
		errs = append(errs, field.Required(p, "must contain at least one key/value pair"))
	}
	return errs
}

func validateStorageClass(_ *resource.Request, c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(field.NewPath("provisioner"), c.Provisioner)
	errs = append(errs, validateParameters(field.NewPath("parameters"), c.Parameters, false)...)
	if c.ReclaimPolicy != nil && *c.ReclaimPolicy != "" {
		errs = append(errs, rule.OneOf(field.NewPath("reclaimPolicy"), *c.ReclaimPolicy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	if c.VolumeBindingMode == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else {
		errs = append(errs, rule.OneOf(field.NewPath("volumeBindingMode"), *c.VolumeBindingMode,
			storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, validateTopologies(field.NewPath("allowedTopologies"), c.AllowedTopologies)...)
}

func validateTopologies(p *field.Path, terms []corev1.TopologySelectorTerm) field.ErrorList {
	var errs field.ErrorList
	var seen []map[string]sets.Set[string]
	for i := range terms {
		expressions := p.Index(i).Child("matchLabelExpressions")
		selected := map[string]sets.Set[string]{}
		for k, e := range terms[i].MatchLabelExpressions {
			at := expressions.Index(k)
			values := sets.New[string]()
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			for n, value := range e.Values {
				if values.Has(value) {
					errs = append(errs, field.Duplicate(at.Child("values").Index(n), value))
				}
				values.Insert(value)
			}
			errs = append(errs, rule.Problems(at.Child("key"), e.Key, utilvalidation.IsQualifiedName(e.Key))...)
			if _, twice := selected[e.Key]; twice {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			selected[e.Key] = values
		}
		if len(selected) == 0 {
			errs = append(errs, field.Duplicate(expressions, ""))
			continue
		}
		for _, other := range seen {
			if equality.Semantic.DeepEqual(selected, other) {
				errs = append(errs, field.Duplicate(expressions, ""))
				break
			}
		}
		seen = append(seen, selected)
	}
	return errs
}

func validateStorageClassUpdate(_ *resource.Request, c, old *storagev1.StorageClass) field.ErrorList {
	errs := rule.Immutable(field.NewPath("parameters"), c.Parameters, old.Parameters)
	errs = append(errs, rule.Immutable(field.NewPath("provisioner"), c.Provisioner, old.Provisioner)...)
	errs = append(errs, rule.Immutable(field.NewPath("reclaimPolicy"), c.ReclaimPolicy, old.ReclaimPolicy)...)
	return append(errs, rule.Immutable(field.NewPath("volumeBindingMode"), c.VolumeBindingMode, old.VolumeBindingMode)...)
}

func validateVolumeAttributesClass(_ *resource.Request, c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateProvisioner(field.NewPath("driverName"), c.DriverName)
	return append(errs, validateParameters(field.NewPath("parameters"), c.Parameters, true)...)
}

func validateVolumeAttributesClassUpdate(_ *resource.Request, c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !equality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return errs
}

func validateCSIDriver(_ *resource.Request, d *storagev1.CSIDriver) field.ErrorList {
	p, s := field.NewPath("spec"), &d.Spec
	var errs field.ErrorList
	if len(d.Name) > maxDriverName {
		errs = append(errs, field.TooLong(field.NewPath("name"), d.Name, maxDriverName))
	}
	if s.FSGroupPolicy != nil {
		errs = append(errs, rule.OneOf(p.Child("fsGroupPolicy"), *s.FSGroupPolicy, storagev1.FileFSGroupPolicy,
			storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	audiences := sets.New[string]()
	for i, request := range s.TokenRequests {
		at := p.Child("tokenRequests").Index(i)
		if audiences.Has(request.Audience) {
			errs = append(errs, field.Duplicate(at.Child("audience"), request.Audience))
		}
		audiences.Insert(request.Audience)
		if e := request.ExpirationSeconds; e != nil && *e < minTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *e, "may not specify a duration less than 10 minutes"))
		} else if e != nil && *e > maxTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *e, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	for _, mode := range s.VolumeLifecycleModes {
		errs = append(errs, rule.OneOf(p.Child("volumeLifecycleModes"), mode, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if n := s.NodeAllocatableUpdatePeriodSeconds; n != nil && *n < minAllocatableUpdateSeconds {
		errs = append(errs, field.Invalid(p.Child("nodeAllocatableUpdatePeriodSeconds"), *n, "must be greater than or equal to 10 seconds"))
	}
	return errs
}

func validateCSIDriverUpdate(_ *resource.Request, d, old *storagev1.CSIDriver) field.ErrorList {
	p := field.NewPath("spec")
	errs := rule.Immutable(p.Child("attachedRequired"), d.Spec.AttachRequired, old.Spec.AttachRequired)
	return append(errs, rule.Immutable(p.Child("volumeLifecycleModes"), d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)...)
}

func validateCSINode(_ *resource.Request, n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range n.Spec.Drivers {
		at, d := field.NewPath("spec", "drivers").Index(i), &n.Spec.Drivers[i]
		errs = append(errs, validateDriverName(at.Child("name"), d.Name)...)
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names.Insert(d.Name)
		if d.NodeID == "" {
			errs = append(errs, field.Required(at.Child("nodeID"), ""))
		} else if len(d.NodeID) > maxNodeID {
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, "must be 256 characters or less"))
		}
		if d.Allocatable != nil {
			errs = append(errs, rule.NonnegativePointer(at.Child("allocatable", "count"), d.Allocatable.Count)...)
		}
		keys := sets.New[string]()
		for _, key := range d.TopologyKeys {
			if key == "" {
				errs = append(errs, field.Required(at, ""))
			}
			if keys.Has(key) {
				errs = append(errs, field.Duplicate(at, key))
			}
			keys.Insert(key)
			errs = append(errs, rule.Problems(at, key, utilvalidation.IsQualifiedName(key))...)
		}
	}
	return errs
}

// validateCSINodeUpdate keeps what is known about a driver besides how many
// volumes it takes: it can only be taken away and registered anew.
func validateCSINodeUpdate(_ *resource.Request, n, old *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	for i := range old.Spec.Drivers {
		for k := range n.Spec.Drivers {
			before, d := old.Spec.Drivers[i].DeepCopy(), n.Spec.Drivers[k].DeepCopy()
			if before.Name != d.Name {
				continue
			}
			before.Allocatable, d.Allocatable = nil, nil
			if !equality.Semantic.DeepEqual(before, d) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "drivers"), rule.Shown(*d), "field is immutable"))
			}
		}
	}
	return errs
}

func validateCSIStorageCapacity(_ *resource.Request, c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := rule.Selector(field.NewPath("nodeTopology"), c.NodeTopology)
	errs = append(errs, rule.Subdomain(field.NewPath("storageClassName"), c.StorageClassName)...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), "must be greater than or equal to 0"))
	}
	if c.MaximumVolumeSize != nil && c.MaximumVolumeSize.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("maximumVolumeSize"), c.MaximumVolumeSize.String(), "must be greater than or equal to 0"))
	}
	return errs
}

func validateCSIStorageCapacityUpdate(_ *resource.Request, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := rule.Immutable(field.NewPath("nodeTopology"), c.NodeTopology, old.NodeTopology)
	return append(errs, rule.Immutable(field.NewPath("storageClassName"), c.StorageClassName, old.StorageClassName)...)
}

func validateVolumeAttachment(_ *resource.Request, a *storagev1.VolumeAttachment) field.ErrorList {
	p, s := field.NewPath("spec"), &a.Spec
	errs := validateDriverName(p.Child("attacher"), s.Attacher)
	source := p.Child("source")
	switch inline, name := s.Source.InlineVolumeSpec, s.Source.PersistentVolumeName; {
	case inline == nil && name == nil:
		errs = append(errs, field.Required(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case inline != nil && name != nil:
		errs = append(errs, field.Forbidden(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case name != nil:
		if *name == "" {
			errs = append(errs, field.Required(source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
		}
		errs = append(errs, rule.Subdomain(source.Child("persistentVolumeName"), *name)...)
	}
	errs = append(errs, rule.Subdomain(p.Child("nodeName"), s.NodeName)...)
	return append(errs, validateAttachmentStatus(nil, a, nil)...)
}

// maxAttachmentErrorMessage is how long the message of a failed attachment
// may be, in bytes.
const maxAttachmentErrorMessage = 1024

func validateAttachmentStatus(_ *resource.Request, a, _ *storagev1.VolumeAttachment) field.ErrorList {
	var errs field.ErrorList
	p := field.NewPath("status")
	for name, failure := range map[string]*storagev1.VolumeError{"attachError": a.Status.AttachError, "detachError": a.Status.DetachError} {
		if failure != nil && len(failure.Message) > maxAttachmentErrorMessage {
			errs = append(errs, field.TooLong(p.Child(name, "message"), failure.Message, maxAttachmentErrorMessage))
		}
	}
	return errs
}

func validateVolumeAttachmentUpdate(_ *resource.Request, a, old *storagev1.VolumeAttachment) field.ErrorList {
	if equality.Semantic.DeepEqual(a.Spec, old.Spec) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), rule.Shown(a.Spec), "field is immutable")}
}
