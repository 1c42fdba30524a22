package apps

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
)

// ControllerRevisions is the resource controllerrevisions.
func ControllerRevisions() *resource.Resource {
	return resource.Define(resource.Definition[appsv1.ControllerRevision, *appsv1.ControllerRevision]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Kind:         "ControllerRevision",
		Plural:       "controllerrevisions",
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Controller", "string", "Controller of the object"),
			resource.Column("Revision", "string", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]),
			resource.AgeColumn(),
		},
		Row: controllerRevisionRow,
	})
}

func controllerRevisionRow(r *appsv1.ControllerRevision, now time.Time) []any {
	controller := cell.None
	if owner := metav1.GetControllerOf(r); owner != nil {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil {
			controller = cell.OwnerName(gv.WithKind(owner.Kind).GroupKind(), owner.Name)
		}
	}
	return []any{r.Name, controller, r.Revision, resource.Age(r.CreationTimestamp, now)}
}
