package resource

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Most metadata consists of plain names, and most kinds check it twice per
// write, which includes building the path of every field. The functions below
// recognize metadata that is certainly valid, so that it need not be checked
// again. A result of false means nothing.

// plainMetadata reports whether an object's metadata is certainly valid.
func plainMetadata(obj metav1.Object, namespaced bool, name func(name string, prefix bool) []string) bool {
	if generate := obj.GetGenerateName(); generate != "" && len(name(generate, true)) > 0 {
		return false
	}
	if obj.GetName() == "" || len(name(obj.GetName(), false)) > 0 {
		return false
	}
	ns := obj.GetNamespace()
	if namespaced != (ns != "") || namespaced && (len(ns) > 63 || !plainSubdomain(ns) || strings.Contains(ns, ".")) {
		return false
	}
	return obj.GetGeneration() >= 0 && plainEntries(obj)
}

// plainChange reports whether the immutable metadata is certainly the same as
// old's.
func plainChange(obj, old metav1.Object) bool {
	created, before := obj.GetCreationTimestamp(), old.GetCreationTimestamp()
	return obj.GetDeletionTimestamp() == nil && old.GetDeletionTimestamp() == nil &&
		obj.GetDeletionGracePeriodSeconds() == nil && old.GetDeletionGracePeriodSeconds() == nil &&
		obj.GetResourceVersion() != "" && obj.GetGeneration() >= max(0, old.GetGeneration()) &&
		obj.GetName() == old.GetName() && obj.GetNamespace() == old.GetNamespace() && obj.GetUID() == old.GetUID() &&
		created.Equal(&before) && plainEntries(obj)
}

// plainEntries does the same for the lists and maps of the metadata.
func plainEntries(obj metav1.Object) bool {
	for key, value := range obj.GetLabels() {
		if !plainKey(key) || value != "" && !plainName(value) {
			return false
		}
	}
	size := 0
	for key, value := range obj.GetAnnotations() {
		if size += len(key) + len(value); size > validation.TotalAnnotationSizeLimitB || !plainKey(key) {
			return false
		}
	}
	finalizers := obj.GetFinalizers()
	return (len(finalizers) == 0 || len(finalizers) == 1 && plainKey(finalizers[0])) &&
		plainOwners(obj.GetOwnerReferences()) && plainManagers(obj.GetManagedFields())
}

func plainOwners(owners []metav1.OwnerReference) bool {
	controllers := 0
	for i := range owners {
		o := &owners[i]
		group, version, grouped := strings.Cut(o.APIVersion, "/")
		if group == "" || grouped && version == "" || strings.Contains(version, "/") ||
			o.Kind == "" || o.Kind == "Event" || o.Name == "" || o.UID == "" {
			return false
		}
		if o.Controller != nil && *o.Controller {
			controllers++
		}
	}
	return controllers <= 1
}

func plainManagers(entries []metav1.ManagedFieldsEntry) bool {
	const long = 128
	for i := range entries {
		e := &entries[i]
		if e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate ||
			e.FieldsType != "FieldsV1" || len(e.Manager) > long || len(e.Subresource) > long {
			return false
		}
		for _, c := range []byte(e.Manager) {
			if c < ' ' || c > '~' {
				return false
			}
		}
	}
	return true
}

// plainKey recognizes keys of labels and annotations: a name with an optional
// domain and slash before it.
func plainKey(key string) bool {
	domain, name, found := strings.Cut(key, "/")
	if !found {
		return plainName(key)
	}
	return plainSubdomain(domain) && plainName(name)
}

// plainName recognizes up to 63 letters and digits, with -, _ and . between
// them.
func plainName(s string) bool {
	if s == "" || len(s) > 63 || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// plainSubdomain recognizes a lower-case DNS subdomain (RFC 1123).
func plainSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	last := byte('.')
	for i := range len(s) {
		switch c := s[i]; {
		case alphanumeric(c) && (c < 'A' || c > 'Z'):
		case c == '-' && last != '.':
		case c == '.' && alphanumeric(last):
		default:
			return false
		}
		last = s[i]
	}
	return alphanumeric(last)
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z'
}
