package core

import (
	"context"
	"encoding/json"
	"net"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/declarative"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// An annotation of old clients, and the path that errors in taints name.
const (
	preferAvoidPodsAnnotation = "scheduler.alpha.kubernetes.io/preferAvoidPods"
	taintsPath                = "taints"
)

func validateNode(_ *resource.RequestContext, n *corev1.Node) field.ErrorList {
	errs := validateNodeAnnotations(n)
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("metadata", taintsPath))...)
	errs = append(errs, validateNodeResources(n)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures)...)
	if policy := n.Spec.PodPreemptionPolicy; policy != nil {
		errs = append(errs, validateNodePreemption(field.NewPath("spec", "podPreemptionPolicy"), policy)...)
	}
	if len(n.Spec.PodCIDRs) > 0 {
		errs = append(errs, validatePodCIDRs(n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs"))...)
	}
	return errs
}

// maxPreemptionOwners is how many owners may forbid preemption for resizes.
const maxPreemptionOwners = 20

func validateNodePreemption(p *field.Path, policy *corev1.NodePodPreemptionPolicy) field.ErrorList {
	return declarative.List(declarative.Create(), p.Child("disableResizePreemption"), policy.DisableResizePreemption, nil,
		func(owner *string) string { return *owner }, maxPreemptionOwners,
		func(op declarative.Operation, p *field.Path, owner, _ *string) field.ErrorList {
			return validate.LabelKey(context.Background(), op, p, owner, nil)
		})
}

func validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]int{}
	for i, cidr := range cidrs {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Index(i), cidr, validators.StrictAddresses, nil)...)
		if ip, _, err := net.ParseCIDR(cidr); err == nil {
			families[ip.To4() != nil]++
		}
	}
	if len(cidrs) > 1 {
		if families[true] != 1 || families[false] != 1 {
			errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
		}
	}
	return errs
}

func validateNodeAnnotations(n *corev1.Node) field.ErrorList {
	path := field.NewPath("metadata", "annotations")
	return append(validateTaintsAnnotation(n, path), validateAvoidPods(n, path)...)
}

// validateTaintsAnnotation checks the annotation that had the taints before the
// specification did.
func validateTaintsAnnotation(n *corev1.Node, path *field.Path) field.ErrorList {
	encoded := n.Annotations[corev1.TaintsAnnotationKey]
	if encoded == "" {
		return nil
	}
	var taints []corev1.Taint
	if err := json.Unmarshal([]byte(encoded), &taints); err != nil {
		return field.ErrorList{field.Invalid(path, corev1.TaintsAnnotationKey, err.Error())}
	}
	return validateTaints(taints, path.Child(corev1.TaintsAnnotationKey))
}

func validateAvoidPods(n *corev1.Node, path *field.Path) field.ErrorList {
	encoded := n.Annotations[preferAvoidPodsAnnotation]
	if encoded == "" {
		return nil
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(encoded), &avoid); err != nil {
		return field.ErrorList{field.Invalid(path.Child("AvoidPods"), preferAvoidPodsAnnotation, err.Error())}
	}
	var errs field.ErrorList
	entries := path.Child(preferAvoidPodsAnnotation)
	for i := range avoid.PreferAvoidPods {
		controller := avoid.PreferAvoidPods[i].PodSignature.PodController
		at := entries.Index(i).Child("PodSignature")
		if controller == nil {
			errs = append(errs, field.Required(at, ""))
		} else if controller.Controller == nil || !*controller.Controller {
			errs = append(errs, field.Invalid(at.Child("PodController", "Controller"), false, "must point to a controller"))
		}
	}
	return errs
}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type identity struct {
		effect corev1.TaintEffect
		key    string
	}
	seen := map[identity]bool{}
	for i := range taints {
		taint, at := &taints[i], path.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(taint.Key, at.Child("key"))...)
		errs = append(errs, validators.Problems(at.Child("value"), taint.Value, utilvalidation.IsValidLabelValue(taint.Value))...)
		errs = append(errs, pod.ValidateTaintEffect(taint.Effect, false, at.Child("effect"))...)
		id := identity{taint.Effect, taint.Key}
		if seen[id] {
			duplicate := field.Duplicate(at, validators.Shown(*taint))
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
			continue
		}
		seen[id] = true
	}
	return errs
}

func validateNodeResources(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	for name, quantity := range n.Status.Capacity {
		errs = append(errs, resourcelist.ValidateQuantity(string(name), quantity, field.NewPath("status", "capacity").Key(string(name)))...)
	}
	for name, quantity := range n.Status.Allocatable {
		errs = append(errs, resourcelist.ValidateQuantity(string(name), quantity, field.NewPath("status", "allocatable").Key(string(name)))...)
	}
	return errs
}

func validateNodeUpdate(_ *resource.RequestContext, n, old *corev1.Node) field.ErrorList {
	errs := validateNodeAnnotations(n)
	errs = append(errs, validateNodeResources(n)...)
	spec := field.NewPath("spec")
	if len(old.Spec.PodCIDRs) > 0 && !reflect.DeepEqual(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"),
			"node updates may not change podCIDR except from \"\" to valid"))
	}
	if len(old.Spec.PodCIDRs) == 0 && len(n.Spec.PodCIDRs) > 0 {
		errs = append(errs, validatePodCIDRs(n.Spec.PodCIDRs, spec.Child("podCIDRs"))...)
	}
	if old.Spec.ProviderID != "" && old.Spec.ProviderID != n.Spec.ProviderID {
		errs = append(errs, field.Forbidden(spec.Child("providerID"),
			"node updates may not change providerID except from \"\" to valid"))
	}
	if n.Spec.ConfigSource != nil && !resource.Equal(n.Spec.ConfigSource, old.Spec.ConfigSource) { //nolint:staticcheck // removed, yet still validated
		errs = append(errs, field.Forbidden(spec.Child("configSource"), "configSource update not supported"))
	}
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("metadata", taintsPath))...)
	return append(errs, validateNodeUnchanged(n, old)...)
}

// validateNodeUnchanged refuses changes to all other fields.
func validateNodeUnchanged(n, old *corev1.Node) field.ErrorList {
	next := old.Spec.DeepCopy()
	next.PodCIDR, next.PodCIDRs = n.Spec.PodCIDR, n.Spec.PodCIDRs
	next.ProviderID = n.Spec.ProviderID
	next.Unschedulable = n.Spec.Unschedulable
	next.Taints = n.Spec.Taints
	next.ConfigSource = n.Spec.ConfigSource //nolint:staticcheck // removed, yet still validated
	if resource.Equal(*next, n.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath(""),
		"node updates may only change labels, taints, or capacity (or configSource, if the DynamicKubeletConfig feature gate is enabled)")}
}

func prepareNodeStatus(r *resource.RequestContext, n, old *corev1.Node) {
	if old.Status.Config == nil {
		n.Status.Config = nil
	}
	if old.Status.NodeInfo.RunningInUserNamespace == nil && !r.Features.Enabled(feature.KubeletInUserNamespace) {
		n.Status.NodeInfo.RunningInUserNamespace = nil
	}
}

func validateNodeStatus(_ *resource.RequestContext, n, _ *corev1.Node) field.ErrorList {
	errs := validateNodeAnnotations(n)
	errs = append(errs, validateNodeResources(n)...)
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures)...)
	seen := map[corev1.NodeAddress]bool{}
	for i, address := range n.Status.Addresses {
		if seen[address] {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), validators.Shown(address)))
		}
		seen[address] = true
	}
	return errs
}

func nodeWarnings(_ *resource.RequestContext, n, _ *corev1.Node) []string {
	var warnings []string
	for i, cidr := range n.Spec.PodCIDRs {
		warnings = append(warnings, utilvalidation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	if n.Spec.ConfigSource != nil { //nolint:staticcheck // removed, yet still validated
		warnings = append(warnings, "spec.configSource: the feature is removed, so this field has no effect")
	}
	if n.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	return warnings
}
