package explain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
)

// Cluster holds the objects of a cluster on which decisions are based. They
// must not be changed.
type Cluster struct {
	Nodes      []*v1.Node
	Pods       []*v1.Pod
	Namespaces []*v1.Namespace
	// Refused names resources without which decisions are possible, but may be wrong.
	Refused []string
}

// Load reads a cluster. The error names the right that is missing, if one is.
func Load(ctx context.Context, kube kubernetes.Interface) (*Cluster, error) {
	c := &Cluster{}
	core := kube.CoreV1()
	lists := []struct {
		list     pager.ListPageFunc
		add      func(runtime.Object)
		optional bool
	}{
		{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Nodes().List(ctx, o)
		}, func(o runtime.Object) { c.Nodes = append(c.Nodes, o.(*v1.Node)) }, false},
		{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Pods("").List(ctx, o)
		}, func(o runtime.Object) { c.Pods = append(c.Pods, o.(*v1.Pod)) }, false},
		{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Namespaces().List(ctx, o)
		}, func(o runtime.Object) { c.Namespaces = append(c.Namespaces, o.(*v1.Namespace)) }, true},
	}
	for _, l := range lists {
		all, _, err := pager.New(l.list).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if apierrors.IsForbidden(err) && l.optional {
			c.Refused = append(c.Refused, err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := meta.EachListItem(all, func(o runtime.Object) error { l.add(o); return nil }); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Pod returns a pod of the cluster, or nil.
func (c *Cluster) Pod(namespace, name string) *v1.Pod {
	i := slices.IndexFunc(c.Pods, func(p *v1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return nil
	}
	return c.Pods[i]
}

// Replace replaces the node or pod with the name of object, or adds object.
// A pod without a node keeps the node of its predecessor. It returns what was done.
func (c *Cluster) Replace(object runtime.Object) (string, error) {
	switch o := object.(type) {
	case *v1.Node:
		i := slices.IndexFunc(c.Nodes, func(n *v1.Node) bool { return n.Name == o.Name })
		if i < 0 {
			c.Nodes = append(c.Nodes, o)
			return "node " + o.Name + " added", nil
		}
		if o.Status.Allocatable == nil && o.Status.Capacity == nil { // a manifest without status
			o.Status = c.Nodes[i].Status
		}
		c.Nodes[i] = o
		return "node " + o.Name + " replaced", nil
	case *v1.Pod:
		return c.replacePod(o)
	}
	return "", fmt.Errorf("a %s cannot be replaced: want pods and nodes", object.GetObjectKind().GroupVersionKind().Kind)
}

func (c *Cluster) replacePod(pod *v1.Pod) (string, error) {
	i := slices.IndexFunc(c.Pods, func(p *v1.Pod) bool { return p.Namespace == pod.Namespace && p.Name == pod.Name })
	if i < 0 {
		if pod.Spec.NodeName == "" {
			return "", fmt.Errorf("pod %s: there is no such pod: say with spec.nodeName which node it is on", klog.KObj(pod))
		}
		c.Pods = append(c.Pods, pod)
		return fmt.Sprintf("pod %s added on node %s", klog.KObj(pod), pod.Spec.NodeName), nil
	}
	old := c.Pods[i]
	pod.UID, pod.CreationTimestamp, pod.Status = old.UID, old.CreationTimestamp, old.Status
	if pod.Spec.NodeName == "" {
		pod.Spec.NodeName = old.Spec.NodeName
	}
	c.Pods[i] = pod
	return fmt.Sprintf("pod %s replaced", klog.KObj(pod)), nil
}

// ReadOnly returns a configuration whose clients read and cannot write.
func ReadOnly(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(base http.RoundTripper) http.RoundTripper { return reader{base} })
	return c
}

type reader struct{ base http.RoundTripper }

var errReadOnly = errors.New("an explanation writes nothing")

// RoundTrip implements http.RoundTripper.
func (r reader) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		return nil, fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, errReadOnly)
	}
	return r.base.RoundTrip(request)
}
