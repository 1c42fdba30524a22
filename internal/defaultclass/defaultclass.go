// Package defaultclass chooses the StorageClass and the IngressClass of objects
// that name none. If several classes are marked as default, it takes the newest.
// If several of these were created in the same second, it takes the first by
// name.
package defaultclass

import (
	"cmp"
	"iter"

	networking "k8s.io/api/networking/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// StorageAnnotation marks a StorageClass as default with the value "true".
	StorageAnnotation = "storageclass.kubernetes.io/is-default-class"
	// betaStorageAnnotation is its older name, which the API still honours.
	betaStorageAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// IsStorage reports whether a StorageClass is marked as default.
func IsStorage(c *storage.StorageClass) bool {
	return c.Annotations[StorageAnnotation] == "true" || c.Annotations[betaStorageAnnotation] == "true"
}

// Storage returns the default StorageClass, or nil.
func Storage(classes iter.Seq[*storage.StorageClass]) *storage.StorageClass {
	return newest(classes, IsStorage)
}

// IsIngress reports whether an IngressClass is marked as default.
func IsIngress(c *networking.IngressClass) bool {
	return c.Annotations[networking.AnnotationIsDefaultIngressClass] == "true"
}

// Ingress returns the default IngressClass, or nil.
func Ingress(classes iter.Seq[*networking.IngressClass]) *networking.IngressClass {
	return newest(classes, IsIngress)
}

// newest returns the newest class that is marked, or nil.
func newest[T interface {
	comparable
	metav1.Object
}](classes iter.Seq[T], marked func(T) bool) T {
	var none, chosen T
	for c := range classes {
		if marked(c) && (chosen == none || precedes(c, chosen)) {
			chosen = c
		}
	}
	return chosen
}

// precedes reports whether class a is preferred to class b.
func precedes(a, b metav1.Object) bool {
	return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName())) < 0
}
