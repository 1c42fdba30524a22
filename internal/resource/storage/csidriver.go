package storage

import (
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// CSIDrivers is the resource csidrivers.
func CSIDrivers() *resource.Resource {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[storagev1.CSIDriver, *storagev1.CSIDriver]{
		GroupVersion:              storagev1.SchemeGroupVersion,
		Kind:                      "CSIDriver",
		Plural:                    "csidrivers",
		ForbidUnconditionalUpdate: true,
		Cluster:                   true,
		Default:                   defaultCSIDriver,
		Validate:                  validateCSIDriver,
		ValidateUpdate:            validateCSIDriverUpdate,
		PrepareForUpdate: func(_ *resource.Request, d, old *storagev1.CSIDriver) {
			if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
				d.Generation = old.Generation + 1
			}
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("AttachRequired", "boolean", doc["attachRequired"]),
			resource.Column("PodInfoOnMount", "boolean", doc["podInfoOnMount"]),
			resource.Column("StorageCapacity", "boolean", doc["storageCapacity"]),
			resource.Column("TokenRequests", "string", doc["tokenRequests"]),
			resource.Column("RequiresRepublish", "boolean", doc["requiresRepublish"]),
			resource.Column("Modes", "string", doc["volumeLifecycleModes"]),
			resource.AgeColumn(),
		},
		Row: csiDriverRow,
	})
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	fill.Nil(&d.Spec.AttachRequired, true)
	fill.Nil(&d.Spec.PodInfoOnMount, false)
	fill.Nil(&d.Spec.StorageCapacity, false)
	fill.Nil(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	fill.Nil(&d.Spec.RequiresRepublish, false)
	fill.Nil(&d.Spec.SELinuxMount, false)
}

func csiDriverRow(d *storagev1.CSIDriver, now time.Time) []any {
	modes, tokens := cell.None, cell.Unset
	if len(d.Spec.VolumeLifecycleModes) > 0 {
		var names []string
		for _, mode := range d.Spec.VolumeLifecycleModes {
			names = append(names, string(mode))
		}
		modes = strings.Join(names, ",")
	}
	if d.Spec.TokenRequests != nil {
		var audiences []string
		for _, request := range d.Spec.TokenRequests {
			audiences = append(audiences, request.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	return []any{
		d.Name, ptr.Deref(d.Spec.AttachRequired, true), ptr.Deref(d.Spec.PodInfoOnMount, false),
		ptr.Deref(d.Spec.StorageCapacity, false), tokens, ptr.Deref(d.Spec.RequiresRepublish, false), modes,
		resource.Age(d.CreationTimestamp, now),
	}
}
