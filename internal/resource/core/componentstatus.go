package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// ComponentStatuses is the resource componentstatuses: the health of the
// control plane's components, determined when it is read.
func ComponentStatuses() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ComponentStatus, *corev1.ComponentStatus]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ComponentStatus", Plural: "componentstatuses", ShortNames: []string{"cs"}},
		Cluster:      true,
		Verbs:        []string{"get", "list"},
		Action:       resource.ReadComponents,
		Table: resource.Table[*corev1.ComponentStatus]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Status", "string", "Status of the component conditions"),
				resource.Column("Message", "string", "Message of the component conditions"),
				resource.Column("Error", "string", "Error of the component conditions"),
			},
			Row: componentStatusRow,
		},
	})
}

func componentStatusRow(c *corev1.ComponentStatus, _ time.Time) []any {
	status, message, failure := "Unknown", "", ""
	for _, condition := range c.Conditions {
		if condition.Type != corev1.ComponentHealthy {
			continue
		}
		status = "Unhealthy"
		if condition.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
		message, failure = condition.Message, condition.Error
		break
	}
	return []any{c.Name, status, message, failure}
}
