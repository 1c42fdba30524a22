package metricsserver

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// List returns the metrics of the objects that the options select, in the order
// of the objects. Objects without metrics are left out. kind is NodeMetrics or
// PodMetrics.
func (s *Server) List(kind, namespace string, o *internalversion.ListOptions) []*watchcache.Entry {
	s.touch()
	var entries []*watchcache.Entry
	add := func(m resource.Object) {
		if m != nil {
			entries = append(entries, registry.Unstored(m))
		}
	}
	if kind == "NodeMetrics" {
		for n := range s.nodes.All("") {
			if selects(o, n) {
				add(s.node(n))
			}
		}
		return entries
	}
	for p := range s.pods.All(namespace) {
		if selects(o, p) {
			add(s.pod(p))
		}
	}
	return entries
}

// Get returns the metrics of one object. It returns false if there are none.
func (s *Server) Get(kind, namespace, name string) (*watchcache.Entry, bool) {
	s.touch()
	var m resource.Object
	if kind == "NodeMetrics" {
		if n, ok := s.nodes.Get("", name); ok {
			m = s.node(n)
		}
	} else if p, ok := s.pods.Get(namespace, name); ok {
		m = s.pod(p)
	}
	if m == nil {
		return nil, false
	}
	return registry.Unstored(m), true
}

// selects reports whether the selectors match a node or a pod, which its
// metrics have the name and the labels of.
func selects(o *internalversion.ListOptions, obj metav1.Object) bool {
	if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
		return false
	}
	return o.FieldSelector == nil || o.FieldSelector.Empty() ||
		o.FieldSelector.Matches(fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()})
}

// node returns the metrics of a node, or nil.
func (s *Server) node(n *corev1.Node) resource.Object {
	u := s.usageOf(n.Name)
	if u == nil || u.precedes(n.CreationTimestamp.Time) || u.node.length() == 0 || u.node.last.memory == 0 {
		return nil
	}
	return &v1beta1.NodeMetrics{
		TypeMeta:   metav1.TypeMeta{Kind: "NodeMetrics", APIVersion: v1beta1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: metav1.Now()},
		Timestamp:  metav1.NewTime(time.Unix(0, u.node.last.at)),
		Window:     metav1.Duration{Duration: u.node.length()},
		Usage:      u.node.resources(),
	}
}

// pod returns the metrics of a pod, or nil if the metrics of a container are
// missing. It ignores the usage of an earlier pod with the same name.
func (s *Server) pod(p *corev1.Pod) resource.Object {
	if p.Status.Phase != corev1.PodRunning {
		return nil
	}
	u := s.usageOf(p.Spec.NodeName)
	if u == nil || u.precedes(p.CreationTimestamp.Time) {
		return nil
	}
	windows := u.pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
	if len(windows) == 0 {
		return nil
	}
	m := &v1beta1.PodMetrics{
		TypeMeta:   metav1.TypeMeta{Kind: "PodMetrics", APIVersion: v1beta1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, CreationTimestamp: metav1.Now()},
		Containers: make([]v1beta1.ContainerMetrics, len(windows)),
	}
	first := &windows[0]
	for i := range windows {
		w := &windows[i]
		if w.length() == 0 {
			return nil
		}
		m.Containers[i] = v1beta1.ContainerMetrics{Name: w.name, Usage: w.resources()}
		if w.last.at < first.last.at {
			first = w
		}
	}
	m.Timestamp, m.Window = metav1.NewTime(time.Unix(0, first.last.at)), metav1.Duration{Duration: first.length()}
	return m
}
