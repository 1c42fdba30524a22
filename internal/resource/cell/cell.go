// Package cell renders the cells of the tables that clients print, where
// several kinds show the same thing.
package cell

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What a cell says when there is nothing to show.
const (
	None  = "<none>"
	Unset = "<unset>"
)

// Containers lists the names and the images of containers.
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

// ContainersColumns are the wide columns that Containers fills.
func ContainersColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Containers", Type: "string", Priority: 1, Description: "Names of each container in the template."},
		{Name: "Images", Type: "string", Priority: 1, Description: "Images referenced by each container in the template."},
	}
}

// SelectorColumn is the wide column of a workload's selector.
func SelectorColumn(description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Selector", Type: "string", Priority: 1, Description: description}
}

// OwnerName names an object with its kind: "daemonset.apps/agent".
func OwnerName(kind schema.GroupKind, name string) string {
	if kind.Empty() {
		return name
	}
	return strings.ToLower(kind.String()) + "/" + name
}

// Head joins the first limit items and says how many it left out.
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
