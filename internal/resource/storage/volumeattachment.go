package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
)

// VolumeAttachments is the resource volumeattachments.
func VolumeAttachments() *resource.Resource {
	doc := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	attacher := resource.Column("Attacher", "string", doc["attacher"])
	attacher.Format = "name"
	return resource.Define(resource.Definition[storagev1.VolumeAttachment, *storagev1.VolumeAttachment]{
		GroupVersion:              storagev1.SchemeGroupVersion,
		Kind:                      "VolumeAttachment",
		Plural:                    "volumeattachments",
		ForbidUnconditionalUpdate: true,
		Cluster:                   true,
		CopyStatus:                func(a, from *storagev1.VolumeAttachment) { a.Status = from.Status },
		Validate:                  validateVolumeAttachment,
		ValidateUpdate:            validateVolumeAttachmentUpdate,
		ValidateStatus:            validateAttachmentStatus,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			attacher,
			resource.Column("PV", "string", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
			resource.Column("Node", "string", doc["nodeName"]),
			resource.Column("Attached", "boolean", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
			resource.AgeColumn(),
		},
		Row: func(a *storagev1.VolumeAttachment, now time.Time) []any {
			return []any{
				a.Name, a.Spec.Attacher, ptr.Deref(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName,
				a.Status.Attached, resource.Age(a.CreationTimestamp, now),
			}
		},
	})
}
