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

// PriorityLevelConfigurations is the resource prioritylevelconfigurations.
func PriorityLevelConfigurations() *resource.Resource {
	limited, queuing := flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc(), flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	return resource.Define(resource.Definition[flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.PriorityLevelConfiguration]{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "PriorityLevelConfiguration", Plural: "prioritylevelconfigurations"},
		Cluster:      true,
		Default:      defaultPriorityLevel,
		Spec:         func(l *flowcontrolv1.PriorityLevelConfiguration) any { return l.Spec },
		Status: resource.Status[*flowcontrolv1.PriorityLevelConfiguration]{
			Copy: func(l, from *flowcontrolv1.PriorityLevelConfiguration) { l.Status = from.Status },
			Validate: func(_ *resource.RequestContext, l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
				return validateConditionTypes(l.Status.Conditions, func(c flowcontrolv1.PriorityLevelConfigurationCondition) string { return string(c.Type) })
			},
			KeepsMetadata: true,
		},
		MetadataUpdateUnchecked: true,
		Strategy:                resource.Strategy[*flowcontrolv1.PriorityLevelConfiguration]{Validate: validatePriorityLevel},
		Table: resource.Table[*flowcontrolv1.PriorityLevelConfiguration]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Type", "string", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
				resource.Column("NominalConcurrencyShares", "string", limited["nominalConcurrencyShares"]),
				resource.Column("Queues", "string", queuing["queues"]),
				resource.Column("HandSize", "string", queuing["handSize"]),
				resource.Column("QueueLengthLimit", "string", queuing["queueLengthLimit"]),
				resource.AgeColumn(),
			},
			Row: priorityLevelRow,
		},
	})
}

func defaultPriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := l.Spec.Exempt; exempt != nil {
		defaults.Nil(&exempt.NominalConcurrencyShares, 0)
		defaults.Nil(&exempt.LendablePercent, 0)
	}
	if limited := l.Spec.Limited; limited != nil {
		defaults.Nil(&limited.NominalConcurrencyShares, 30)
		defaults.Nil(&limited.LendablePercent, 0)
		if queuing := limited.LimitResponse.Queuing; queuing != nil {
			defaults.Zero(&queuing.HandSize, 8)
			defaults.Zero(&queuing.Queues, 64)
			defaults.Zero(&queuing.QueueLengthLimit, 50)
		}
	}
}

func priorityLevelRow(l *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
	var shares, queues, handSize, length any = printers.None, printers.None, printers.None, printers.None
	if exempt := l.Spec.Exempt; exempt != nil && exempt.NominalConcurrencyShares != nil {
		shares = int64(*exempt.NominalConcurrencyShares)
	}
	if limited := l.Spec.Limited; limited != nil {
		if limited.NominalConcurrencyShares != nil {
			shares = int64(*limited.NominalConcurrencyShares)
		}
		if queuing := limited.LimitResponse.Queuing; queuing != nil {
			queues, handSize, length = int64(queuing.Queues), int64(queuing.HandSize), int64(queuing.QueueLengthLimit)
		}
	}
	return []any{l.Name, string(l.Spec.Type), shares, queues, handSize, length, resource.Age(l.CreationTimestamp, now)}
}
