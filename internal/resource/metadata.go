package resource

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nearly all metadata is of plain names, and most kinds check it twice a
// write, with the paths of all its fields. What is told to be valid here need
// not be checked again; of everything else nothing is said.

// plainMetadata says whether an object's metadata is sure to be valid.
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

// plainChange says whether the fixed parts of the metadata are sure to be old's.
func plainChange(obj, old metav1.Object) bool {
	created, before := obj.GetCreationTimestamp(), old.GetCreationTimestamp()
	return obj.GetDeletionTimestamp() == nil && old.GetDeletionTimestamp() == nil &&
		obj.GetDeletionGracePeriodSeconds() == nil && old.GetDeletionGracePeriodSeconds() == nil &&
		obj.GetResourceVersion() != "" && obj.GetGeneration() >= max(0, old.GetGeneration()) &&
		obj.GetName() == old.GetName() && obj.GetNamespace() == old.GetNamespace() && obj.GetUID() == old.GetUID() &&
		created.Equal(&before) && plainEntries(obj)
}

// plainEntries looks at the lists and maps of the metadata.
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

// plainKey recognizes the keys of labels and annotations: a name, with a
// domain and a slash before it or without.
func plainKey(key string) bool {
	domain, name, found := strings.Cut(key, "/")
	if !found {
		return plainName(key)
	}
	return plainSubdomain(domain) && plainName(name)
}

// plainName recognizes up to 63 letters, digits and, within, any of -_.
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

// plainSubdomain recognizes a DNS subdomain (RFC 1123) in small letters.
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
