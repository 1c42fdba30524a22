package node

import (
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// RuntimeClasses is the resource runtimeclasses.
func RuntimeClasses() *resource.Resource {
	return resource.Define(resource.Definition[nodev1.RuntimeClass, *nodev1.RuntimeClass]{
		GroupVersion:              nodev1.SchemeGroupVersion,
		Kind:                      "RuntimeClass",
		Plural:                    "runtimeclasses",
		ForbidUnconditionalUpdate: true,
		Cluster:                   true,
		AllowCreateOnUpdate:       true,
		Validate:                  validateRuntimeClass,
		ValidateUpdate: func(_ *resource.Request, c, old *nodev1.RuntimeClass) field.ErrorList {
			return rule.Immutable(field.NewPath("handler"), c.Handler, old.Handler)
		},
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
