// Package nodeipam gives every node its part of the cluster CIDR, from which
// its pods get their addresses.
package nodeipam

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
var Descriptor = controller.Descriptor{
	Name:           "node-ipam-controller",
	Aliases:        []string{"nodeipam"},
	ServiceAccount: "node-controller",
	EventSource:    "cidrAllocator",
	New:            New,
}

// Default mask sizes of a node's part.
const (
	defaultMaskIPv4 = 24
	defaultMaskIPv6 = 64
)

// workers is how many nodes are given CIDRs at once.
const workers = 4

type allocator struct {
	env   *controller.Env
	kube  kubernetes.Interface
	nodes corelisters.NodeLister
	queue *controller.Queue[string]

	mu sync.Mutex // guards all below
	// sets has one entry for each cluster CIDR, in the order of the flag.
	sets []*cidrs
	// held are the CIDRs of each node, as known or as handed out.
	held map[string][]netip.Prefix
}

// New builds the controller. Without --allocate-node-cidrs it does nothing.
func New(env *controller.Env) (controller.Controller, error) {
	if !env.Options.AllocateNodeCIDRs {
		return controller.Func(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}
	sets, err := parse(env.Options)
	if err != nil {
		return nil, err
	}
	c := &allocator{
		env: env, kube: env.Client.Kubernetes, nodes: env.Client.Informers.Core().V1().Nodes().Lister(),
		sets: sets, held: map[string][]netip.Prefix{},
	}
	c.queue = controller.NewQueue("cidrallocator_node", c.sync)
	return c, nil
}

// parse makes the allocators of the command line's CIDRs, with the Services'
// addresses taken out.
func parse(o *controller.Options) ([]*cidrs, error) {
	if len(o.ClusterCIDR) == 0 {
		return nil, fmt.Errorf("--allocate-node-cidrs needs --cluster-cidr")
	}
	var sets []*cidrs
	for _, s := range o.ClusterCIDR {
		cluster, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr: %w", err)
		}
		bits := cmp.Or(o.NodeCIDRMaskSizeIPv4, defaultMaskIPv4)
		if cluster.Addr().Is6() {
			bits = cmp.Or(o.NodeCIDRMaskSizeIPv6, defaultMaskIPv6)
		}
		if len(o.ClusterCIDR) == 1 {
			bits = cmp.Or(o.NodeCIDRMaskSize, bits)
		}
		set, err := newCIDRs(cluster, bits)
		if err != nil {
			return nil, err
		}
		for _, service := range o.ServiceClusterIPRange {
			p, err := netip.ParsePrefix(service)
			if err != nil {
				return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
			}
			set.mark(p, true)
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// Run implements controller.Controller. All nodes' CIDRs are known before the
// first is handed out, because Serve handles all initial events first.
func (c *allocator) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Core().V1().Nodes().Informer(), c.nodeChanged),
	}, c.queue.Workers(workers))
}

func (c *allocator) nodeChanged(old, new *v1.Node) {
	if new == nil {
		c.release(old.Name)
		return
	}
	if len(new.Spec.PodCIDRs) == 0 {
		c.queue.Add(new.Name)
		return
	}
	c.occupy(new)
}

// occupy notes the CIDRs that a node has.
func (c *allocator) occupy(node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[node.Name] != nil {
		return
	}
	for _, s := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			c.held[node.Name] = append(c.held[node.Name], p)
			c.mark(p, true)
		}
	}
}

// release frees a node's CIDRs and wakes the nodes that wait for some.
func (c *allocator) release(name string) {
	c.mu.Lock()
	for _, p := range c.held[name] {
		c.mark(p, false)
	}
	delete(c.held, name)
	c.mu.Unlock()
	all, err := c.nodes.List(labels.Everything())
	if err != nil {
		return
	}
	for _, node := range all {
		if len(node.Spec.PodCIDRs) == 0 {
			c.queue.Add(node.Name)
		}
	}
}

func (c *allocator) mark(p netip.Prefix, used bool) {
	for _, set := range c.sets {
		set.mark(p, used)
	}
}

// take hands out a CIDR of each family to a node, the same again if it asks
// twice.
func (c *allocator) take(name string) ([]netip.Prefix, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held := c.held[name]; held != nil {
		return held, nil
	}
	var taken []netip.Prefix
	for _, set := range c.sets {
		p, err := set.allocate()
		if err != nil {
			for _, p := range taken {
				c.mark(p, false)
			}
			return nil, err
		}
		taken = append(taken, p)
	}
	c.held[name] = taken
	return taken, nil
}

func (c *allocator) sync(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && len(node.Spec.PodCIDRs) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	taken, err := c.take(name)
	if err != nil {
		c.env.Events.Eventf(&v1.ObjectReference{Kind: "Node", Name: name, UID: node.UID}, v1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: %s", name, "CIDRNotAvailable")
		klog.FromContext(ctx).Error(err, "Node gets no pod CIDR until another node is deleted", "node", name)
		return nil
	}
	strings := make([]string, len(taken))
	for i, p := range taken {
		strings[i] = p.String()
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"spec":     map[string]any{"podCIDR": strings[0], "podCIDRs": strings},
	})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.release(name)
		return nil
	case err != nil:
		c.env.Events.Eventf(&v1.ObjectReference{Kind: "Node", Name: name, UID: node.UID}, v1.EventTypeNormal, "CIDRAssignmentFailed", "Node %s status is now: %s", name, "CIDRAssignmentFailed")
		return fmt.Errorf("setting pod CIDR of node %s: %w", name, err)
	}
	klog.FromContext(ctx).V(2).Info("Gave node its pod CIDR", "node", name, "podCIDRs", strings)
	return nil
}
