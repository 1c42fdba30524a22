package devices

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// DeviceClasses is the resource deviceclasses.
func DeviceClasses() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.DeviceClass, *resourcev1.DeviceClass]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Kind:         "DeviceClass",
		Plural:       "deviceclasses",
		Cluster:      true,
		Spec:         func(c *resourcev1.DeviceClass) any { return c.Spec },
		Columns:      []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
	})
}
