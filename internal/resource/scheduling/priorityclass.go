package scheduling

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// PriorityClasses is the resource priorityclasses.
func PriorityClasses() *resource.Resource {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return resource.Define(resource.Definition[schedulingv1.PriorityClass, *schedulingv1.PriorityClass]{
		GroupVersion: schedulingv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "PriorityClass", Plural: "priorityclasses", ShortNames: []string{"pc"}},
		Cluster:      true,
		Default: func(c *schedulingv1.PriorityClass) {
			defaults.Nil(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*schedulingv1.PriorityClass]{
			PrepareForCreate: func(_ *resource.RequestContext, c *schedulingv1.PriorityClass) { c.Generation = 1 },
			Validate:         validatePriorityClass,
			ValidateUpdate:   validatePriorityClassUpdate,
		},
		DeleteStrategy: resource.DeleteStrategy[*schedulingv1.PriorityClass]{
			ForbidDelete: func(name string) string {
				if name == systemClusterCritical || name == systemNodeCritical {
					return "this is a system priority class and cannot be deleted"
				}
				return ""
			},
		},
		Table: resource.Table[*schedulingv1.PriorityClass]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Value", "integer", doc["value"]),
				resource.Column("Global-Default", "boolean", doc["globalDefault"]),
				resource.AgeColumn(),
				resource.Column("PreemptionPolicy", "string", doc["preemptionPolicy"]),
			},
			Row: func(c *schedulingv1.PriorityClass, now time.Time) []any {
				policy := ptr.Deref(c.PreemptionPolicy, corev1.PreemptLowerPriority)
				return []any{c.Name, int64(c.Value), c.GlobalDefault, resource.Age(c.CreationTimestamp, now), string(policy)}
			},
		},
	})
}

// The range of priorities for users, and the priority classes of the system.
const (
	highestUserPriority   = 1000000000
	systemPrefix          = "system-"
	systemClusterCritical = "system-cluster-critical"
	systemNodeCritical    = "system-node-critical"
)

func validatePriorityClass(_ *resource.RequestContext, c *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(c.Name, systemPrefix) {
		if problem := systemClassProblem(c); problem != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+problem))
		}
	} else if c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	switch policy := c.PreemptionPolicy; {
	case policy == nil:
	case *policy == "":
		errs = append(errs, field.Required(field.NewPath("preemptionPolicy"), ""))
	default:
		errs = append(errs, validators.OneOf(field.NewPath("preemptionPolicy"), *c.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

// systemClassProblem returns why c is not one of the priority classes of the
// system, or "".
func systemClassProblem(c *schedulingv1.PriorityClass) string {
	values := map[string]int32{systemClusterCritical: 2 * highestUserPriority, systemNodeCritical: 2*highestUserPriority + 1000}
	value, known := values[c.Name]
	switch {
	case !known:
		return fmt.Sprintf("%v is not a known system priority class", c.Name)
	case c.Value != value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be %v", c.Name, false)
	default:
		return ""
	}
}

func validatePriorityClassUpdate(_ *resource.RequestContext, c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, validators.Immutable(field.NewPath("preemptionPolicy"), c.PreemptionPolicy, old.PreemptionPolicy)...)
}
