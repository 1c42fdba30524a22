package apps

import (
	"encoding/json"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// ControllerRevisions is the resource controllerrevisions.
func ControllerRevisions() *resource.Resource {
	return resource.Define(resource.Definition[appsv1.ControllerRevision, *appsv1.ControllerRevision]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Kind:         "ControllerRevision",
		Plural:       "controllerrevisions",
		Validate:     validateControllerRevision,
		ValidateUpdate: func(_ *resource.Request, r, old *appsv1.ControllerRevision) field.ErrorList {
			return rule.Immutable(field.NewPath("data"), r.Data, old.Data)
		},
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

func validateControllerRevision(_ *resource.Request, r *appsv1.ControllerRevision) field.ErrorList {
	var errs field.ErrorList
	if r.Data.Object == nil {
		var object map[string]any
		switch p := field.NewPath("data"); {
		case len(r.Data.Raw) == 0:
			errs = append(errs, field.Required(p, "data is mandatory"))
		case json.Unmarshal(r.Data.Raw, &object) != nil:
			errs = append(errs, field.Required(p, "data must be a valid JSON object"))
		}
	}
	return append(errs, rule.Nonnegative(field.NewPath("revision"), r.Revision)...)
}
