package nodeselector

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TermsWarnings returns warnings about deprecated labels in the terms of a
// selector.
func TermsWarnings(terms []corev1.NodeSelectorTerm, at *field.Path) []string {
	var warnings []string
	for i := range terms {
		warnings = append(warnings, TermWarnings(&terms[i], at.Index(i))...)
	}
	return warnings
}

// TermWarnings returns warnings about deprecated labels in one term.
func TermWarnings(t *corev1.NodeSelectorTerm, at *field.Path) []string {
	var warnings []string
	for i := range t.MatchExpressions {
		warnings = append(warnings, LabelWarnings(t.MatchExpressions[i].Key, at.Child("matchExpressions").Index(i).Child("key"))...)
	}
	return warnings
}

// LabelWarnings returns a warning if the label key at a path is deprecated.
func LabelWarnings(key string, at *field.Path) []string {
	if message, deprecated := DeprecatedLabel(key); deprecated {
		return []string{fmt.Sprintf("%s: %s is %s", at, key, message)}
	}
	return nil
}

// DeprecatedLabel reports whether a node label is deprecated, and returns the
// message that names its replacement.
func DeprecatedLabel(key string) (message string, deprecated bool) {
	by, since := replacement(key)
	if by == "" {
		return "", false
	}
	return fmt.Sprintf("deprecated since %s; use %q instead", since, by), true
}

// Replacement returns the label that replaced a deprecated node label, or "".
func Replacement(key string) string {
	by, _ := replacement(key)
	return by
}

func replacement(key string) (by, since string) {
	switch key {
	case "beta.kubernetes.io/arch":
		return corev1.LabelArchStable, "v1.14"
	case "beta.kubernetes.io/os":
		return corev1.LabelOSStable, "v1.14"
	case corev1.LabelFailureDomainBetaRegion:
		return corev1.LabelTopologyRegion, "v1.17"
	case corev1.LabelFailureDomainBetaZone:
		return corev1.LabelTopologyZone, "v1.17"
	case corev1.LabelInstanceType:
		return corev1.LabelInstanceTypeStable, "v1.17"
	}
	return "", ""
}
