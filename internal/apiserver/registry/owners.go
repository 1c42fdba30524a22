package registry

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

// dedupOwnerReferences removes duplicate owner references and warns about
// them.
func (q *Request) dedupOwnerReferences(obj resource.Object, warning string) {
	owners := obj.GetOwnerReferences()
	if len(owners) < 2 {
		return
	}
	kept, duplicates := distinctOwners(owners)
	if len(duplicates) == 0 {
		return
	}
	q.warn(fmt.Sprintf(warning, strings.Join(duplicates, ", ")))
	obj.SetOwnerReferences(kept)
}

func distinctOwners(owners []metav1.OwnerReference) (kept []metav1.OwnerReference, duplicates []string) {
	type content struct {
		metav1.OwnerReference // without its pointers
		controller, block     ternary
	}
	seen := make(map[content]bool, len(owners))
	for _, owner := range owners {
		c := content{owner, ternaryOf(owner.Controller), ternaryOf(owner.BlockOwnerDeletion)}
		c.Controller, c.BlockOwnerDeletion = nil, nil
		if seen[c] {
			duplicates = append(duplicates, string(owner.UID))
			continue
		}
		seen[c] = true
		kept = append(kept, owner)
	}
	return kept, duplicates
}

// ternary is the value of a *bool; 0 is nil.
type ternary int8

func ternaryOf(b *bool) ternary {
	switch {
	case b == nil:
		return 0
	case *b:
		return 1
	}
	return -1
}
