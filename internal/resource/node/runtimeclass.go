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
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// RuntimeClasses is the resource runtimeclasses.
func RuntimeClasses() *resource.Resource {
	return resource.Define(resource.Definition[nodev1.RuntimeClass, *nodev1.RuntimeClass]{
		GroupVersion:              nodev1.SchemeGroupVersion,
		Kind:                      "RuntimeClass",
		Plural:                    "runtimeclasses",
		UnqualifiedFinalizers:     true,
		ForbidUnconditionalUpdate: true,
		Cluster:                   true,
		AllowCreateOnUpdate:       true,
		Validate:                  validateRuntimeClass,
		ValidateUpdate: func(_ *resource.Request, c, old *nodev1.RuntimeClass) field.ErrorList {
			return rule.Immutable(field.NewPath("handler"), c.Handler, old.Handler)
		},
		Warnings: runtimeClassWarnings,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Handler", "string", nodev1.RuntimeClass{}.SwaggerDoc()["handler"]),
			resource.AgeColumn(),
		},
		Row: func(c *nodev1.RuntimeClass, now time.Time) []any {
			return []any{c.Name, c.Handler, resource.Age(c.CreationTimestamp, now)}
		},
	})
}

// runtimeClassWarnings are of node selectors by labels that have been replaced.
func runtimeClassWarnings(_ *resource.Request, c, _ *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if message, deprecated := core.DeprecatedNodeLabel(key); deprecated {
			warnings = append(warnings, fmt.Sprintf("%s: %s", field.NewPath("scheduling", "nodeSelector"), message))
		}
	}
	return warnings
}
