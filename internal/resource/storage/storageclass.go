package storage

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// Annotations that make a StorageClass the default one; the second is the
// older form.
const (
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// StorageClasses is the resource storageclasses.
func StorageClasses() *resource.Resource {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return resource.Define(resource.Definition[storagev1.StorageClass, *storagev1.StorageClass]{
		GroupVersion: storagev1.SchemeGroupVersion,
		Kind:         "StorageClass",
		Plural:       "storageclasses",
		ShortNames:   []string{"sc"},
		Cluster:      true,
		Default: func(c *storagev1.StorageClass) {
			fill.Nil(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			fill.Nil(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		},
		Validate:       validateStorageClass,
		ValidateUpdate: validateStorageClassUpdate,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Provisioner", "string", doc["provisioner"]),
			resource.Column("ReclaimPolicy", "string", doc["reclaimPolicy"]),
			resource.Column("VolumeBindingMode", "string", doc["volumeBindingMode"]),
			resource.Column("AllowVolumeExpansion", "string", doc["allowVolumeExpansion"]),
			resource.AgeColumn(),
		},
		Row: storageClassRow,
	})
}

func storageClassRow(c *storagev1.StorageClass, now time.Time) []any {
	name := c.Name
	if c.Annotations[defaultClassAnnotation] == "true" || c.Annotations[betaDefaultClassAnnotation] == "true" {
		name += " (default)"
	}
	return []any{
		name, c.Provisioner, string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
		string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate)), ptr.Deref(c.AllowVolumeExpansion, false),
		resource.Age(c.CreationTimestamp, now),
	}
}
