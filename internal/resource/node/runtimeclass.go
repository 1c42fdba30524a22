package node

import (
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// RuntimeClasses is the resource runtimeclasses.
func RuntimeClasses() *resource.Resource {
	return resource.Define(resource.Definition[nodev1.RuntimeClass, *nodev1.RuntimeClass]{
		GroupVersion: nodev1.SchemeGroupVersion,
		Kind:         "RuntimeClass",
		Plural:       "runtimeclasses",
		Cluster:      true,
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
