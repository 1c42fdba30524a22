// Package nodeipam is the node IPAM controller. It allocates a pod CIDR for every node
// from the cluster CIDR.
package nodeipam

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/flagvalue"
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
	// AllocateNodeCIDRs enables the controller.
	AllocateNodeCIDRs bool
	// ClusterCIDR and ServiceClusterIPRange are the ranges for pods and Services, at most
	// one for each IP family.
	ClusterCIDR, ServiceClusterIPRange []string
	// NodeCIDRMaskSize is the prefix length of a node's CIDR in a cluster with one cluster
	// CIDR. The others are the prefix lengths by IP family. 0 means the default, which is
	// 24 for IPv4 and 64 for IPv6.
	NodeCIDRMaskSize, NodeCIDRMaskSizeIPv4, NodeCIDRMaskSizeIPv6 int
}

func (o *Options) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.AllocateNodeCIDRs, "allocate-node-cidrs", o.AllocateNodeCIDRs, "allocate a range of pod addresses to each node")
	fs.StringSliceVar(&o.ClusterCIDR, "cluster-cidr", o.ClusterCIDR, "address ranges of pods, at most one of each IP family")
	fs.StringSliceVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange, "address ranges of Services, at most one of each IP family")
	fs.IntVar(&o.NodeCIDRMaskSize, "node-cidr-mask-size", o.NodeCIDRMaskSize, "prefix length of a node's range; the default is 24 for IPv4 and 64 for IPv6; not for dual-stack clusters")
	fs.IntVar(&o.NodeCIDRMaskSizeIPv4, "node-cidr-mask-size-ipv4", o.NodeCIDRMaskSizeIPv4, "prefix length of a node's IPv4 range; the default is 24")
	fs.IntVar(&o.NodeCIDRMaskSizeIPv6, "node-cidr-mask-size-ipv6", o.NodeCIDRMaskSizeIPv6, "prefix length of a node's IPv6 range; the default is 64")
	flagvalue.Is(fs, flagvalue.Ranges, "cluster-cidr", "service-cluster-ip-range")
}

func (o *Options) validate() error {
	if !o.AllocateNodeCIDRs {
		return nil
	}
	_, err := parse(o)
	return err
}

// Default prefix lengths of a node's CIDR.
const (
	defaultMaskIPv4 = 24
	defaultMaskIPv6 = 64
)

// workers is the number of nodes that are synced concurrently.
const workers = 4

type allocator struct {
	env   *controller.Env
	kube  kubernetes.Interface
	nodes corelisters.NodeLister
	queue *controller.Queue[string]

	mu sync.Mutex // guards the following
	// sets has one entry for each cluster CIDR, in the order of the flag.
	sets []*cidrSet
	// allocated holds the CIDRs of each node.
	allocated map[string][]netip.Prefix
	// waiting are the nodes for which there was no free block.
	waiting map[string]bool
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
		sets: sets, allocated: map[string][]netip.Prefix{}, waiting: map[string]bool{},
	}
	c.queue = controller.NewQueue(env.Queues, "cidrallocator_node", controller.Existing[string](env.Client.Informers.Core().V1().Nodes().Informer(), c.sync))
	return c, nil
}

// MaskSizeIPv4 returns the prefix length of a node's IPv4 CIDR.
func (o *Options) MaskSizeIPv4() int {
	return cmp.Or(o.NodeCIDRMaskSize, o.NodeCIDRMaskSizeIPv4, defaultMaskIPv4)
}

// MaskSizeIPv6 returns the prefix length of a node's IPv6 CIDR.
func (o *Options) MaskSizeIPv6() int {
	return cmp.Or(o.NodeCIDRMaskSize, o.NodeCIDRMaskSizeIPv6, defaultMaskIPv6)
}

// parse returns the CIDR sets of the cluster CIDRs, without the ranges of Services.
func parse(o *Options) ([]*cidrSet, error) {
	switch {
	case len(o.ClusterCIDR) == 0:
		return nil, errors.New("--allocate-node-cidrs needs --cluster-cidr")
	case o.NodeCIDRMaskSize != 0 && len(o.ClusterCIDR) > 1:
		return nil, errors.New("usage of --node-cidr-mask-size is not allowed with dual-stack clusters")
	case o.NodeCIDRMaskSize != 0 && (o.NodeCIDRMaskSizeIPv4 != 0 || o.NodeCIDRMaskSizeIPv6 != 0):
		return nil, errors.New("usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set")
	}
	var sets []*cidrSet
	var hasIPv4, hasIPv6 bool
	for _, s := range o.ClusterCIDR {
		cluster, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr: %w", err)
		}
		var bits int
		if cluster.Addr().Is6() {
			hasIPv6, bits = true, o.MaskSizeIPv6()
		} else {
			hasIPv4, bits = true, o.MaskSizeIPv4()
		}
		set, err := newCIDRSet(cluster, bits)
		if err != nil {
			return nil, err
		}
		for _, service := range o.ServiceClusterIPRange {
			p, err := netip.ParsePrefix(service)
			if err != nil {
				return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
			}
			set.reserve(p)
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

// Run implements controller.Controller. The CIDRs of existing nodes are marked before the
// first allocation, because Serve handles all initial events first.
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

// occupy marks the CIDRs of a node as used. They differ from those that were allocated
// for it if an earlier leader wrote others.
func (c *allocator) occupy(node *v1.Node) {
	var cidrs []netip.Prefix
	for _, s := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			cidrs = append(cidrs, p)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, node.Name)
	reserved := c.allocated[node.Name]
	if len(cidrs) == 0 || slices.Equal(cidrs, reserved) {
		return
	}
	c.allocated[node.Name] = cidrs
	for _, p := range cidrs {
		c.mark(p, true)
	}
	c.free(reserved)
}

// release frees the CIDRs of a node that is gone.
func (c *allocator) release(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reserved := c.allocated[name]
	delete(c.allocated, name)
	delete(c.waiting, name)
	c.free(reserved)
}

// free frees CIDRs, except for the blocks that another node has too, and enqueues as many
// waiting nodes as there are free blocks. If such a node is deleted before its turn, its
// own release enqueues another one.
func (c *allocator) free(cidrs []netip.Prefix) {
	for _, p := range cidrs {
		c.mark(p, false)
		for _, others := range c.allocated {
			for _, other := range others {
				if other.Overlaps(p) {
					c.mark(other, true)
				}
			}
		}
	}
	free := len(c.waiting)
	for _, set := range c.sets {
		free = min(free, set.free)
	}
	for waiting := range c.waiting {
		if free == 0 {
			return
		}
		if _, err := c.nodes.Get(waiting); err != nil { // it was deleted while it was synced
			delete(c.waiting, waiting)
			continue
		}
		c.queue.Add(waiting)
		free--
	}
}

func (c *allocator) mark(p netip.Prefix, used bool) {
	for _, set := range c.sets {
		set.mark(p, used)
	}
}

// allocate returns the CIDRs of a node, one of each IP family. It allocates them if the
// node has none.
func (c *allocator) allocate(name string) ([]netip.Prefix, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cidrs := c.allocated[name]; cidrs != nil {
		return cidrs, nil
	}
	var cidrs []netip.Prefix
	for _, set := range c.sets {
		p, err := set.allocate()
		if err != nil {
			for _, p := range cidrs {
				c.mark(p, false)
			}
			c.waiting[name] = true
			return nil, err
		}
		cidrs = append(cidrs, p)
	}
	delete(c.waiting, name)
	c.allocated[name] = cidrs
	return cidrs, nil
}

func (c *allocator) sync(ctx context.Context, node *v1.Node) error {
	if len(node.Spec.PodCIDRs) > 0 {
		return nil
	}
	name := node.Name
	cidrs, err := c.allocate(name)
	if err != nil {
		c.env.Events.Eventf(&v1.ObjectReference{Kind: "Node", Name: name, UID: node.UID}, v1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: %s", name, "CIDRNotAvailable")
		klog.FromContext(ctx).Error(err, "No pod CIDR is available for node", "node", name)
		return nil
	}
	strings := make([]string, len(cidrs))
	for i, p := range cidrs {
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
	klog.FromContext(ctx).V(2).Info("Set pod CIDR of node", "node", name, "podCIDRs", strings)
	return nil
}
