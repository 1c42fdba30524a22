package pod

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/declarative"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of the fields of features that are off by default.
const (
	maxEvictionResponders    = 10
	maxResponderPriority     = 100000
	reservedResponderBelow   = 1000
	highestDirectoryMode     = 0o1777
	reservedResponderDomains = "k8s.io kubernetes.io"
)

// validateGatedFields checks the fields of features that are off by default.
// volumes has the pod's valid volumes by name.
func validateGatedFields(spec *corev1.PodSpec, volumes map[string]*corev1.VolumeSource, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group := spec.SchedulingGroup; group != nil {
		errs = append(errs, declarative.Pointer(declarative.Create(), p.Child("schedulingGroup", "podGroupName"), group.PodGroupName, nil, declarative.Required, validate.LongName)...)
	}
	errs = append(errs, validateEvictionResponders(p, spec)...)
	for i := range spec.InitContainers {
		errs = append(errs, validateGatedContainerFields(&spec.InitContainers[i], volumes, p.Child("initContainers").Index(i))...)
	}
	for i := range spec.Containers {
		errs = append(errs, validateGatedContainerFields(&spec.Containers[i], volumes, p.Child("containers").Index(i))...)
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.EmptyDir != nil && v.EmptyDir.Mode != nil && (*v.EmptyDir.Mode < 0 || *v.EmptyDir.Mode > highestDirectoryMode) {
			errs = append(errs, field.Invalid(p.Child("volumes").Index(i).Child("emptyDir", "mode"), *v.EmptyDir.Mode, "must be a value between 0000 and 01777"))
		}
		eachOwner(v, func(owner **int64) bool {
			if *owner != nil {
				errs = append(errs, validators.Problems(p.Child("volumes").Index(i), **owner, utilvalidation.IsValidUserID(**owner))...)
			}
			return true
		})
	}
	return errs
}

func validateEvictionResponders(p *field.Path, spec *corev1.PodSpec) field.ErrorList {
	if spec.EvictionResponders == nil {
		return nil
	}
	errs := validate.DependentForbidden(context.Background(), declarative.Create(), p, spec, nil,
		"evictionResponders", func(s *corev1.PodSpec) bool { return len(s.EvictionResponders) > 0 },
		"schedulingGroup", func(s *corev1.PodSpec) bool { return s.SchedulingGroup != nil })
	return append(errs, declarative.List(declarative.Create(), p.Child("evictionResponders"), spec.EvictionResponders, nil,
		func(r *corev1.EvictionResponder) string { return r.Name }, maxEvictionResponders,
		func(op declarative.Operation, p *field.Path, r, _ *corev1.EvictionResponder) field.ErrorList {
			errs := declarative.Value(op, p.Child("name"), &r.Name, nil, declarative.Required, validate.PrefixedLabelKey)
			domain, _, _ := strings.Cut(r.Name, "/")
			for _, reserved := range strings.Fields(reservedResponderDomains) {
				if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
					errs = append(errs, field.Invalid(p.Child("name"), r.Name, "domain names *.k8s.io and *.kubernetes.io are reserved"))
				}
			}
			errs = append(errs, declarative.Pointer(op, p.Child("priority"), r.Priority, nil, declarative.Required, declarative.Min[int32](0), declarative.Max[int32](maxResponderPriority))...)
			if r.Priority != nil && *r.Priority >= 0 && *r.Priority < reservedResponderBelow {
				errs = append(errs, field.Invalid(p.Child("priority"), *r.Priority, "the interval 0-999 is reserved for responders with *.k8s.io suffix"))
			}
			return errs
		})...)
}

func validateGatedContainerFields(c *corev1.Container, volumes map[string]*corev1.VolumeSource, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], p.Child("volumeMounts").Index(i).Child("bindMountOptions")
		if source := volumes[m.Name]; m.BindMountOptions != nil && source != nil && source.Image != nil {
			errs = append(errs, field.Forbidden(at, "may not be set for image volumes"))
		}
		seen := map[string]bool{}
		for k, option := range m.BindMountOptions {
			errs = append(errs, validators.OneOf(at.Index(k), option, "nodev", "noexec", "nosuid")...)
			if seen[option] {
				errs = append(errs, field.Duplicate(at.Index(k), option))
			}
			seen[option] = true
		}
	}
	for _, probe := range []struct {
		name string
		*corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if probe.Probe == nil {
			continue
		}
		if g := probe.HTTPGet; g != nil && g.Protocol != nil {
			at := p.Child(probe.name, "httpGet", "protocol")
			errs = append(errs, validators.OneOf(at, *g.Protocol, corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)...)
			if *g.Protocol == corev1.HTTPProtocolHTTP2 && g.Scheme == corev1.URISchemeHTTPS {
				errs = append(errs, field.Invalid(at, *g.Protocol, fmt.Sprintf("must be used with scheme %s", corev1.URISchemeHTTP)))
			}
		}
		if g := probe.GRPC; g != nil && g.Mode != nil {
			errs = append(errs, validators.OneOf(p.Child(probe.name, "grpc", "mode"), *g.Mode, corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)...)
		}
	}
	return errs
}
