package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// ServiceCIDRs is the resource servicecidrs.
func ServiceCIDRs() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Kind:         "ServiceCIDR",
		Plural:       "servicecidrs",
		Cluster:      true,
		CopyStatus:   func(c, from *networkingv1.ServiceCIDR) { c.Status = from.Status },
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("CIDRs", "string", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]),
			resource.AgeColumn(),
		},
		Row: func(c *networkingv1.ServiceCIDR, now time.Time) []any {
			return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), resource.Age(c.CreationTimestamp, now)}
		},
	})
}
