package flowcontrol

import (
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// FlowSchemas is the resource flowschemas.
func FlowSchemas() *resource.Resource {
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[flowcontrolv1.FlowSchema, *flowcontrolv1.FlowSchema]{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "FlowSchema", Plural: "flowschemas"},
		Cluster:      true,
		Default: func(s *flowcontrolv1.FlowSchema) {
			defaults.Zero(&s.Spec.MatchingPrecedence, defaultMatchingPrecedence)
		},
		Spec: func(s *flowcontrolv1.FlowSchema) any { return s.Spec },
		Status: resource.Status[*flowcontrolv1.FlowSchema]{
			Copy: func(s, from *flowcontrolv1.FlowSchema) { s.Status = from.Status },
			Validate: func(_ *resource.RequestContext, s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
				return validateConditionTypes(s.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) })
			},
			KeepsMetadata: true,
		},
		MetadataUpdateUnchecked: true,
		Strategy:                resource.Strategy[*flowcontrolv1.FlowSchema]{Validate: validateFlowSchema},
		Table: resource.Table[*flowcontrolv1.FlowSchema]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("PriorityLevel", "string", doc["priorityLevelConfiguration"]),
				resource.Column("MatchingPrecedence", "string", doc["matchingPrecedence"]),
				resource.Column("DistinguisherMethod", "string", doc["distinguisherMethod"]),
				resource.AgeColumn(),
				resource.Column("MissingPL", "string", "references a broken or non-existent PriorityLevelConfiguration"),
			},
			Row: flowSchemaRow,
		},
	})
}

func flowSchemaRow(s *flowcontrolv1.FlowSchema, now time.Time) []any {
	method, dangling := printers.None, "?"
	if s.Spec.DistinguisherMethod != nil {
		method = string(s.Spec.DistinguisherMethod.Type)
	}
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			dangling = string(c.Status)
			break
		}
	}
	return []any{
		s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method,
		resource.Age(s.CreationTimestamp, now), dangling,
	}
}

// defaultMatchingPrecedence is the default of matchingPrecedence.
const defaultMatchingPrecedence = 1000
