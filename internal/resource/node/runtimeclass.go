package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// RuntimeClasses is the resource runtimeclasses.
func RuntimeClasses() *resource.Resource {
	return resource.Define(resource.Definition[nodev1.RuntimeClass, *nodev1.RuntimeClass]{
		GroupVersion:          nodev1.SchemeGroupVersion,
		Names:                 resource.Names{Kind: "RuntimeClass", Plural: "runtimeclasses"},
		Cluster:               true,
		UnqualifiedFinalizers: true,
		Strategy: resource.Strategy[*nodev1.RuntimeClass]{
			ForbidUnconditionalUpdate: true,
			AllowCreateOnUpdate:       true,
			Validate:                  validateRuntimeClass,
			ValidateUpdate: func(_ *resource.RequestContext, c, old *nodev1.RuntimeClass) field.ErrorList {
				return validators.Unchanged(field.NewPath("handler"), c.Handler, old.Handler)
			},
			Warnings: runtimeClassWarnings,
		},
		Table: resource.Table[*nodev1.RuntimeClass]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Handler", "string", nodev1.RuntimeClass{}.SwaggerDoc()["handler"]),
				resource.AgeColumn(),
			},
			Row: func(c *nodev1.RuntimeClass, now time.Time) []any {
				return []any{c.Name, c.Handler, resource.Age(c.CreationTimestamp, now)}
			},
		},
	})
}

// runtimeClassWarnings warns of deprecated node labels in the node selector.
func runtimeClassWarnings(_ *resource.RequestContext, c, _ *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if message, deprecated := nodeselector.DeprecatedLabel(key); deprecated {
			warnings = append(warnings, fmt.Sprintf("%s: %s", field.NewPath("scheduling", "nodeSelector"), message))
		}
	}
	return warnings
}
