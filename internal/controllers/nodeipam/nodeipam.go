// Package nodeipam gives every node its part of the cluster CIDR, from which
// its pods get their addresses.
package nodeipam

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/spf13/pflag"
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
func Descriptor(o *Options) controller.Descriptor {
	return controller.Descriptor{
		Name:           "node-ipam-controller",
		Aliases:        []string{"nodeipam"},
		ServiceAccount: "node-controller",
		EventSource:    "cidrAllocator",
		AddFlags:       o.addFlags,
		Validate:       o.validate,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

// Options are the options of the controller.
type Options struct {
	// AllocateNodeCIDRs is whether nodes are given CIDRs at all.
	AllocateNodeCIDRs bool
	// ClusterCIDR and ServiceClusterIPRange are the ranges of pods and Services,
	// one of each IP family.
	ClusterCIDR, ServiceClusterIPRange []string
	// The lengths of the nodes' prefixes: NodeCIDRMaskSize in a cluster with one
	// cluster CIDR, the others by family. 0 is 24 for IPv4 and 64 for IPv6.
	NodeCIDRMaskSize, NodeCIDRMaskSizeIPv4, NodeCIDRMaskSizeIPv6 int
}

func (o *Options) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.AllocateNodeCIDRs, "allocate-node-cidrs", o.AllocateNodeCIDRs, "Should CIDRs for Pods be allocated and set on the nodes.")
	fs.StringSliceVar(&o.ClusterCIDR, "cluster-cidr", o.ClusterCIDR, "CIDR Range for Pods in cluster, one of each IP family.")
	fs.StringSliceVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange, "CIDR Range for Services in cluster, one of each IP family.")
	fs.IntVar(&o.NodeCIDRMaskSize, "node-cidr-mask-size", o.NodeCIDRMaskSize, "Mask size for node cidr in cluster. Default is 24 for IPv4 and 64 for IPv6. Not for dual-stack clusters.")
	fs.IntVar(&o.NodeCIDRMaskSizeIPv4, "node-cidr-mask-size-ipv4", o.NodeCIDRMaskSizeIPv4, "Mask size for IPv4 node cidr. Default is 24.")
	fs.IntVar(&o.NodeCIDRMaskSizeIPv6, "node-cidr-mask-size-ipv6", o.NodeCIDRMaskSizeIPv6, "Mask size for IPv6 node cidr. Default is 64.")
}

func (o *Options) validate() error {
	if !o.AllocateNodeCIDRs {
		return nil
	}
	_, err := parse(o)
	return err
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

// newController builds the controller. Without --allocate-node-cidrs it does nothing.
func newController(env *controller.Env, o *Options) (controller.Controller, error) {
	if !o.AllocateNodeCIDRs {
		return controller.Func(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}
	sets, err := parse(o)
	if err != nil {
		return nil, err
	}
	c := &allocator{
		env: env, kube: env.Client.Kubernetes, nodes: env.Client.Informers.Core().V1().Nodes().Lister(),
		sets: sets, held: map[string][]netip.Prefix{},
	}
	c.queue = controller.NewQueue("cidrallocator_node", controller.Existing[string](env.Client.Informers.Core().V1().Nodes().Informer(), c.sync))
	return c, nil
}

// parse makes the allocators of the cluster CIDRs, with the Services' addresses
// taken out.
func parse(o *Options) ([]*cidrs, error) {
	switch {
	case len(o.ClusterCIDR) == 0:
		return nil, errors.New("--allocate-node-cidrs needs --cluster-cidr")
	case o.NodeCIDRMaskSize != 0 && len(o.ClusterCIDR) > 1:
		return nil, errors.New("usage of --node-cidr-mask-size is not allowed with dual-stack clusters")
	case o.NodeCIDRMaskSize != 0 && (o.NodeCIDRMaskSizeIPv4 != 0 || o.NodeCIDRMaskSizeIPv6 != 0):
		return nil, errors.New("usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set")
	}
	var sets []*cidrs
	var hasIPv4, hasIPv6 bool
	for _, s := range o.ClusterCIDR {
		cluster, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr: %w", err)
		}
		var bits int
		if cluster.Addr().Is6() {
			hasIPv6, bits = true, cmp.Or(o.NodeCIDRMaskSize, o.NodeCIDRMaskSizeIPv6, defaultMaskIPv6)
		} else {
			hasIPv4, bits = true, cmp.Or(o.NodeCIDRMaskSize, o.NodeCIDRMaskSizeIPv4, defaultMaskIPv4)
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
	if o.NodeCIDRMaskSizeIPv4 != 0 && !hasIPv4 {
		return nil, errors.New("usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster")
	}
	if o.NodeCIDRMaskSizeIPv6 != 0 && !hasIPv6 {
		return nil, errors.New("usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster")
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

func (c *allocator) sync(ctx context.Context, node *v1.Node) error {
	if len(node.Spec.PodCIDRs) > 0 {
		return nil
	}
	name := node.Name
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
