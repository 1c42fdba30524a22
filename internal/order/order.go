// Package order compares what package cmp does not.
package order

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FalseFirst compares two bools: -1 if only b is true, 1 if only a is, else 0.
func FalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// ByAge compares objects by age, the oldest first. Namespaces and names decide among
// those of one age.
func ByAge[T metav1.Object](a, b T) int {
	created, other := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(created.Compare(other.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
