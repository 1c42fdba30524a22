package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
)

// PodOptions say how strict the rules for pods and their templates are. Rules
// that came later than objects which break them do not hold for what such an
// object already had (ratcheting).
type PodOptions struct {
	// OldAddresses are addresses that an earlier version of the object had.
	OldAddresses sets.Set[string]
	// InvalidLabelSelectors are let through, in affinity and topology spread.
	InvalidLabelSelectors bool
	// BrokenHugePages, amounts that are no whole pages, are let through.
	BrokenHugePages bool
	// InvalidDeletionCost in an annotation is let through.
	InvalidDeletionCost bool
	// NumericTolerations, of taints with lower or higher values, are allowed.
	NumericTolerations bool
	// HostNetworkOfUsers, the host's network for pods with users of their own,
	// is allowed.
	HostNetworkOfUsers bool
	// VolumeDevicesOfUsers, for pods with users of their own, are let through.
	VolumeDevicesOfUsers bool
	// RestartAll lets the exit of one container restart them all, and sidecars
	// have rules for restarts, too.
	RestartAll bool
}

// PodTemplateOptions are the options for a template that replaces old, which
// is nil for a new one.
func PodTemplateOptions(features *feature.Set, old *corev1.PodTemplateSpec) PodOptions {
	o := PodOptions{
		OldAddresses:       sets.New[string](),
		NumericTolerations: NumericTolerations(features, nil),
		HostNetworkOfUsers: features.Enabled("UserNamespacesHostNetworkSupport"),
		RestartAll:         features.Enabled("RestartAllContainersOnContainerExits"),
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
	if hasOwnUsers(spec) {
		o.HostNetworkOfUsers = o.HostNetworkOfUsers || spec.HostNetwork
		o.VolumeDevicesOfUsers = anyContainer(spec, func(c *corev1.Container) bool { return len(c.VolumeDevices) > 0 })
	}
	return o
}

func hasBrokenPages(list corev1.ResourceList) bool {
	for name, quantity := range list {
		if isHugePages(name) && !wholePages(name, quantity) {
			return true
		}
	}
	return false
}

// hasInvalidSelectors reports whether a pod that may stay as it is has
// selectors that a new one could not have.
func hasInvalidSelectors(spec *corev1.PodSpec) bool {
	invalid := func(selector *metav1.LabelSelector) bool {
		return selector != nil && len(metav1validation.ValidateLabelSelector(selector,
			metav1validation.LabelSelectorValidationOptions{}, field.NewPath(""))) > 0
	}
	terms := podAffinityTerms(spec.Affinity)
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

// ValidatePodTemplateSpec checks the template from which pods are made.
func ValidatePodTemplateSpec(template *corev1.PodTemplateSpec, path *field.Path, options PodOptions) field.ErrorList {
	errs := validateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, validation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, validatePodAnnotations(template.Annotations, &template.Spec, options, path.Child("annotations"))...)
	spec := path.Child("spec")
	errs = append(errs, ValidatePodSpec(&template.Spec, nil, spec, options)...)
	if len(template.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// validatePodBody checks a pod but for its metadata, which Define looks after.
func validatePodBody(p *corev1.Pod, options PodOptions) field.ErrorList {
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := validatePodAnnotations(p.Annotations, &p.Spec, options, metadata.Child("annotations"))
	errs = append(errs, ValidatePodSpec(&p.Spec, &p.ObjectMeta, spec, options)...)
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
