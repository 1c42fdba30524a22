package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
)

// IPAddresses is the resource ipaddresses.
func IPAddresses() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.IPAddress, *networkingv1.IPAddress]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Kind:         "IPAddress",
		Plural:       "ipaddresses",
		ShortNames:   []string{"ip"},
		Cluster:      true,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("ParentRef", "string", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]),
		},
		Row: func(a *networkingv1.IPAddress, _ time.Time) []any {
			return []any{a.Name, parentCell(a.Spec.ParentRef)}
		},
	})
}

func parentCell(p *networkingv1.ParentReference) string {
	if p == nil {
		return cell.None
	}
	parts := []string{strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())}
	if p.Namespace != "" {
		parts = append(parts, p.Namespace)
	}
	return strings.Join(append(parts, p.Name), "/")
}
