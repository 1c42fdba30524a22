package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Options are the rules for pods and pod templates that depend on feature gates
// or on the stored object. A stored object that breaks a newer rule may keep what
// it has (ratcheting).
type Options struct {
	// OldAddresses are the IP addresses of the stored object, valid or not.
	OldAddresses sets.Set[string]
	// InvalidLabelSelectors allows them in affinity and topology spread.
	InvalidLabelSelectors bool
	// BrokenHugePages allows amounts that are not whole pages.
	BrokenHugePages bool
	// InvalidDeletionCost allows it in the annotation.
	InvalidDeletionCost bool
	// NumericTolerations allows the operators Lt and Gt (KEP-5471).
	NumericTolerations bool
	// HostNetworkOfUsers allows the host network for pods with a user namespace.
	HostNetworkOfUsers bool
	// VolumeDevicesOfUsers allows block devices for pods with a user namespace.
	VolumeDevicesOfUsers bool
	// RestartAll allows the action RestartAllContainers, and restart rules for
	// sidecars.
	RestartAll bool
	// RestartsInit allows init containers that run once to have the resize policy
	// RestartContainer.
	RestartsInit bool
	// HostSysctls allows sysctls of namespaces that the pod shares with the host.
	HostSysctls bool
	// ForbidPrivileged refuses privileged containers and HostProcess containers.
	ForbidPrivileged bool
}

// TemplateOptions returns the options for a template that replaces old in
// request r. old is nil for a new template.
func TemplateOptions(r *resource.RequestContext, old *corev1.PodTemplateSpec) Options {
	features := r.Features
	o := Options{
		ForbidPrivileged:   r.ForbidPrivileged,
		OldAddresses:       sets.New[string](),
		NumericTolerations: NumericTolerations(features, nil),
		HostNetworkOfUsers: features.Enabled(feature.UserNamespacesHostNetworkSupport),
		RestartAll:         features.Enabled(feature.RestartAllContainersOnContainerExits),
	}
	if old == nil {
		return o
	}
	spec := &old.Spec
	for _, alias := range spec.HostAliases {
		o.OldAddresses.Insert(alias.IP)
	}
	if spec.DNSConfig != nil {
		o.OldAddresses.Insert(spec.DNSConfig.Nameservers...)
	}
	o.InvalidLabelSelectors = hasInvalidSelectors(spec)
	o.BrokenHugePages = anyContainer(spec, func(c *corev1.Container) bool {
		return hasBrokenPages(c.Resources.Limits) || hasBrokenPages(c.Resources.Requests)
	})
	o.InvalidDeletionCost = hasInvalidDeletionCost(old.Annotations)
	o.NumericTolerations = NumericTolerations(features, spec.Tolerations)
	o.RestartAll = o.RestartAll || anyContainer(spec, restartsAll)
	o.RestartsInit = slices.ContainsFunc(spec.InitContainers, func(c corev1.Container) bool { return !podquery.IsSidecar(&c) && restartsToResize(&c) })
	o.HostSysctls = hasHostSysctls(spec)
	if podquery.HasUserNamespace(spec) {
		o.HostNetworkOfUsers = o.HostNetworkOfUsers || spec.HostNetwork
		o.VolumeDevicesOfUsers = anyContainer(spec, func(c *corev1.Container) bool { return len(c.VolumeDevices) > 0 })
	}
	return o
}

func hasBrokenPages(list corev1.ResourceList) bool {
	for name, quantity := range list {
		if resourcelist.IsHugePages(name) && !wholePages(name, quantity) {
			return true
		}
	}
	return false
}

// hasInvalidSelectors reports whether a stored pod has label selectors that a new
// one must not have.
func hasInvalidSelectors(spec *corev1.PodSpec) bool {
	invalid := func(selector *metav1.LabelSelector) bool {
		return selector != nil && len(metav1validation.ValidateLabelSelector(selector,
			metav1validation.LabelSelectorValidationOptions{}, field.NewPath(""))) > 0
	}
	terms := affinityTerms(spec.Affinity)
	for i := range terms {
		if invalid(terms[i].LabelSelector) || invalid(terms[i].NamespaceSelector) {
			return true
		}
	}
	for i := range spec.TopologySpreadConstraints {
		if invalid(spec.TopologySpreadConstraints[i].LabelSelector) {
			return true
		}
	}
	return false
}

// ValidateTemplate checks the template from which pods are made.
func ValidateTemplate(template *corev1.PodTemplateSpec, path *field.Path, options Options) field.ErrorList {
	errs := validators.Labels(path.Child("labels"), template.Labels)
	errs = append(errs, validation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, validateAnnotations(template.Annotations, &template.Spec, options, path.Child("annotations"))...)
	spec := path.Child("spec")
	errs = append(errs, validateSpec(&template.Spec, nil, spec, options)...)
	errs = append(errs, validateProfilesAgree(template.Annotations, &template.Spec, spec)...)
	if len(template.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// validateBody checks a pod without its metadata, which [resource.Define] checks.
func validateBody(p *corev1.Pod, options Options) field.ErrorList {
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := validateAnnotations(p.Annotations, &p.Spec, options, metadata.Child("annotations"))
	errs = append(errs, validateSpec(&p.Spec, &p.ObjectMeta, spec, options)...)
	if p.Spec.ServiceAccountName == "" {
		for i := range p.Spec.Volumes {
			if projected := p.Spec.Volumes[i].Projected; projected != nil {
				for j := range projected.Sources {
					if projected.Sources[j].ServiceAccountToken != nil {
						errs = append(errs, field.Forbidden(
							spec.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
							"must not be specified when serviceAccountName is not set"))
					}
				}
			}
		}
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	if len(p.Spec.EphemeralContainers) > 0 && p.ResourceVersion == "" {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	return errs
}
