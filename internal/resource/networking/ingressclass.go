package networking

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// IngressClasses is the resource ingressclasses.
func IngressClasses() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.IngressClass, *networkingv1.IngressClass]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Kind:         "IngressClass",
		Plural:       "ingressclasses",
		Cluster:      true,
		Default: func(c *networkingv1.IngressClass) {
			if c.Spec.Parameters != nil {
				fill.Nil(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		},
		Spec: func(c *networkingv1.IngressClass) any { return c.Spec },
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Controller", "string", "Controller that is responsible for handling this class"),
			resource.Column("Parameters", "string", "A reference to a resource with additional parameters"),
			resource.AgeColumn(),
		},
		Row: ingressClassRow,
	})
}

func ingressClassRow(c *networkingv1.IngressClass, now time.Time) []any {
	parameters := cell.None
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{c.Name, c.Spec.Controller, parameters, resource.Age(c.CreationTimestamp, now)}
}
