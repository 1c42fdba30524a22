// Package printers renders the table cells and columns that several kinds share.
package printers

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Texts of cells without a value.
const (
	None  = "<none>"
	Unset = "<unset>"
)

// Containers returns the names and the images of containers, each joined by commas.
func Containers(containers []corev1.Container) (names, images string) {
	var name, image strings.Builder
	for i := range containers {
		if i > 0 {
			name.WriteByte(',')
			image.WriteByte(',')
		}
		name.WriteString(containers[i].Name)
		image.WriteString(containers[i].Image)
	}
	return name.String(), image.String()
}

// ContainersColumns returns the wide columns for the results of Containers.
func ContainersColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Containers", Type: "string", Priority: 1, Description: "Names of each container in the template."},
		{Name: "Images", Type: "string", Priority: 1, Description: "Images referenced by each container in the template."},
	}
}

// SelectorColumn returns the wide column of a workload's selector.
func SelectorColumn(description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Selector", Type: "string", Priority: 1, Description: description}
}

// OwnerName returns the kind and the name of an object: "daemonset.apps/agent".
func OwnerName(kind schema.GroupKind, name string) string {
	if kind.Empty() {
		return name
	}
	return strings.ToLower(kind.String()) + "/" + name
}

// Head joins the first limit items and adds the number of those left out.
func Head(items []string, limit int) string {
	if len(items) <= limit {
		return strings.Join(items, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(items[:limit], ","), len(items)-limit)
}

// BoolPointer renders an optional boolean.
func BoolPointer(b *bool) string {
	switch {
	case b == nil:
		return Unset
	case *b:
		return "True"
	default:
		return "False"
	}
}
