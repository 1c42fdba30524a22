// Package metrics defines the resources of the group metrics.k8s.io: the CPU
// and memory that nodes and pods use. They are measured, not stored. The API is
// the same as the API of metrics-server, which can take the group over by an
// APIService.
package metrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/coracle-io/coracle/internal/resource"
)

// Resources lists the group's resources. The priorities are those that the
// metrics-server registers.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 100, Versions: map[string]int32{"v1beta1": 100}}, Nodes(), Pods())
}

// Nodes is the resource nodes of metrics.k8s.io.
func Nodes() *resource.Resource {
	return resource.Define(resource.Definition[v1beta1.NodeMetrics, *v1beta1.NodeMetrics]{
		GroupVersion: v1beta1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "NodeMetrics", Plural: "nodes"},
		Cluster:      true,
		Verbs:        []string{"get", "list"},
		Action:       resource.ReadMetrics,
		Storage:      resource.Storage{Path: "metrics.k8s.io/nodes"},
		Table: resource.Table[*v1beta1.NodeMetrics]{
			Columns: columns(),
			Row: func(m *v1beta1.NodeMetrics, _ time.Time) []any {
				return []any{m.Name, m.Usage.Cpu().String(), m.Usage.Memory().String(), m.Window.Duration.String()}
			},
		},
	})
}

// Pods is the resource pods of metrics.k8s.io.
func Pods() *resource.Resource {
	return resource.Define(resource.Definition[v1beta1.PodMetrics, *v1beta1.PodMetrics]{
		GroupVersion: v1beta1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "PodMetrics", Plural: "pods"},
		Verbs:        []string{"get", "list"},
		Action:       resource.ReadMetrics,
		Storage:      resource.Storage{Path: "metrics.k8s.io/pods"},
		Table: resource.Table[*v1beta1.PodMetrics]{
			Columns: columns(),
			Row: func(m *v1beta1.PodMetrics, _ time.Time) []any {
				cpu, memory := sum(m, corev1.ResourceCPU), sum(m, corev1.ResourceMemory)
				return []any{m.Name, cpu.String(), memory.String(), m.Window.Duration.String()}
			},
		},
	})
}

func columns() []metav1.TableColumnDefinition {
	formatted := func(name, format string) metav1.TableColumnDefinition {
		return metav1.TableColumnDefinition{Name: name, Type: "string", Format: format}
	}
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the resource"},
		formatted("cpu", "quantity"), formatted("memory", "quantity"), formatted("Window", "duration"),
	}
}

// sum returns what the containers of a pod use together.
func sum(m *v1beta1.PodMetrics, name corev1.ResourceName) (total quantity.Quantity) {
	for i := range m.Containers {
		total.Add(m.Containers[i].Usage[name])
	}
	return total
}
