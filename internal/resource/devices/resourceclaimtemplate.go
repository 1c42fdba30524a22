package devices

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// ResourceClaimTemplates is the resource resourceclaimtemplates.
func ResourceClaimTemplates() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplate]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Kind:         "ResourceClaimTemplate",
		Plural:       "resourceclaimtemplates",
		Default:      func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) },
		Columns:      []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
	})
}
