package apps

import (
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// ControllerRevisions is the resource controllerrevisions.
func ControllerRevisions() *resource.Resource {
	return resource.Define(resource.Definition[appsv1.ControllerRevision, *appsv1.ControllerRevision]{
		GroupVersion: appsv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ControllerRevision", Plural: "controllerrevisions"},

		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*appsv1.ControllerRevision]{
			Validate:       validateControllerRevision,
			ValidateUpdate: validateControllerRevisionUpdate,
		},
		Table: resource.Table[*appsv1.ControllerRevision]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Controller", "string", "Controller of the object"),
				resource.Column("Revision", "string", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]),
				resource.AgeColumn(),
			},
			Row: controllerRevisionRow,
		},
	})
}

func controllerRevisionRow(r *appsv1.ControllerRevision, now time.Time) []any {
	controller := printers.None
	if owner := metav1.GetControllerOf(r); owner != nil {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil {
			controller = printers.OwnerName(gv.WithKind(owner.Kind).GroupKind(), owner.Name)
		}
	}
	return []any{r.Name, controller, r.Revision, resource.Age(r.CreationTimestamp, now)}
}

func validateControllerRevision(_ *resource.RequestContext, r *appsv1.ControllerRevision) field.ErrorList {
	errs := validators.Nonnegative(field.NewPath("revision"), r.Revision)
	if r.Data.Object == nil {
		errs = append(errs, validateRevisionData(field.NewPath("data"), r.Data.Raw)...)
	}
	return errs
}

// validateControllerRevisionUpdate does not check the data, which cannot change: older
// versions stored null.
func validateControllerRevisionUpdate(_ *resource.RequestContext, r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := resource.ValidateNamedMetadata(r, true, validation.NameIsDNSSubdomain)
	errs = append(errs, validators.Nonnegative(field.NewPath("revision"), r.Revision)...)
	return append(errs, validators.Immutable(field.NewPath("data"), r.Data, old.Data)...)
}

// validateRevisionData requires a JSON object.
func validateRevisionData(p *field.Path, raw []byte) field.ErrorList {
	if len(raw) == 0 {
		return field.ErrorList{field.Required(p, "data is mandatory")}
	}
	var data any
	if err := json.Unmarshal(raw, &data); err != nil {
		return field.ErrorList{field.Invalid(p, "<value omitted>", fmt.Sprintf("error parsing data: %v", err))}
	}
	if data == nil {
		return field.ErrorList{field.Required(p, "data is mandatory")}
	}
	if _, object := data.(map[string]any); !object {
		return field.ErrorList{field.Required(p, "data must be a valid JSON object")}
	}
	return nil
}
