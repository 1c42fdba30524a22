package apiserver

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

const (
	duplicateOwners         = ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
	duplicateOwnersAdmitted = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
)

// dropDuplicateOwners keeps the first of equal owner references and warns.
func (q *request) dropDuplicateOwners(obj resource.Object, warning string) {
	owners := obj.GetOwnerReferences()
	if len(owners) < 2 {
		return
	}
	kept, duplicates := distinctOwners(owners)
	if len(duplicates) == 0 {
		return
	}
	q.warnings.AddWarning("", fmt.Sprintf(warning, strings.Join(duplicates, ", ")))
	obj.SetOwnerReferences(kept)
}

func distinctOwners(owners []metav1.OwnerReference) (kept []metav1.OwnerReference, duplicates []string) {
	for _, owner := range owners {
		if containsOwner(kept, owner) {
			duplicates = append(duplicates, string(owner.UID))
		} else {
			kept = append(kept, owner)
		}
	}
	return kept, duplicates
}

func containsOwner(owners []metav1.OwnerReference, owner metav1.OwnerReference) bool {
	for _, o := range owners {
		if o.UID == owner.UID && o.Name == owner.Name && o.Kind == owner.Kind && o.APIVersion == owner.APIVersion &&
			sameBool(o.Controller, owner.Controller) && sameBool(o.BlockOwnerDeletion, owner.BlockOwnerDeletion) {
			return true
		}
	}
	return false
}

func sameBool(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }
