package validators

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// LeaseStrategy requires a strategy of Kubernetes, or a qualified name for a
// custom one.
func LeaseStrategy(p *field.Path, strategy coordinationv1.CoordinatedLeaseStrategy) field.ErrorList {
	if strings.Contains(string(strategy), "/") {
		return Problems(p, strategy, utilvalidation.IsQualifiedName(string(strategy)))
	}
	return OneOf(p, strategy, coordinationv1.OldestEmulationVersion)
}
