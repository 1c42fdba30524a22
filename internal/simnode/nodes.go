package simnode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Options describe several nodes of one kind. They are called sim-0, sim-1 and
// so on.
type Options struct {
	Count int
	// Resources override the resources of Default, such as "cpu": "4".
	Resources map[string]string
	Labels    map[string]string
	// Zones are the zones of the nodes, in turn.
	Zones []string
}

// Label is a label of all simulated nodes. Its value is "true".
const Label = "simulation.coracle.io/node"

const namePrefix = "sim-"

// maxCount is the most nodes. Each has 256 addresses of the range for pods.
const maxCount = 1 << 14

// Nodes are simulated nodes in one process.
type Nodes []*Node

// NewNodes returns the nodes of some options.
func NewNodes(o Options) (Nodes, error) {
	if o.Count < 0 || o.Count > maxCount {
		return nil, fmt.Errorf("%d simulated nodes: want 0 to %d", o.Count, maxCount)
	}
	capacity, err := capacityOf(o.Resources)
	if err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateLabels(o.Labels, field.NewPath("labels")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for _, zone := range o.Zones {
		if errs := validation.IsValidLabelValue(zone); len(errs) > 0 || zone == "" {
			return nil, fmt.Errorf("zone %q: want the value of a label", zone)
		}
	}
	nodes := make(Nodes, o.Count)
	for i := range nodes {
		labels := map[string]string{Label: "true", v1.LabelNodeExcludeBalancers: "true"} // nothing listens at their addresses
		if len(o.Zones) > 0 {
			labels[v1.LabelTopologyZone] = o.Zones[i%len(o.Zones)]
		}
		maps.Copy(labels, o.Labels)
		nodes[i] = New(Config{
			Name: namePrefix + strconv.Itoa(i), IP: address(nodeBase, i+1), PodCIDR: (&net.IPNet{IP: address(podBase, i<<8), Mask: net.CIDRMask(24, 32)}).String(),
			Capacity: capacity, Labels: labels,
		})
	}
	return nodes, nil
}

// capacityOf returns the capacity of a node with some resources.
func capacityOf(resources map[string]string) (v1.ResourceList, error) {
	capacity := Default()
	for name, text := range resources {
		if errs := validation.IsQualifiedName(name); len(errs) > 0 {
			return nil, fmt.Errorf("resource %q: %s", name, errs[0])
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("resource %s=%s: want an amount such as 4 or 16Gi", name, text)
		}
		capacity[v1.ResourceName(name)] = q
	}
	return capacity, nil
}

// The addresses of nodes are from 198.18.0.0/15, which RFC 2544 reserves for
// tests. Addresses of pods without a pod CIDR are from 100.64.0.0/10 (RFC 6598).
// Neither is routed in the internet.
const (
	nodeBase = 198<<24 | 18<<16
	podBase  = 100<<24 | 64<<16
)

func address(base uint32, offset int) net.IP {
	return binary.BigEndian.AppendUint32(nil, base+uint32(offset))
}

// Kubelet returns what answers for the kubelet of a node, nil if the node is not
// one of them.
func (all Nodes) Kubelet(node string) http.RoundTripper {
	number, ok := strings.CutPrefix(node, namePrefix)
	if i, err := strconv.Atoi(number); ok && err == nil && i >= 0 && i < len(all) && all[i].Name() == node {
		return all[i]
	}
	return nil
}

// RunWith runs the nodes until ctx ends. A node whose kubelet fails is started
// again; the others are not concerned.
func (all Nodes) RunWith(ctx context.Context, provider client.Provider) error {
	clients := make([]*client.Client, len(all))
	var errs []error
	for i, n := range all {
		var err error
		clients[i], err = provider.As("system:node:"+n.Name(), "system:nodes", "system:authenticated")
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, n := range all {
		supervise.Go(ctx, func() { n.keepRunning(ctx, clients[i]) })
	}
	<-ctx.Done()
	return nil
}

// restartAfter is how long a node waits that has failed.
const restartAfter = 5 * time.Second

func (n *Node) keepRunning(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		err := supervise.Call(func() error { return n.Run(ctx, c) })
		if ctx.Err() != nil {
			return
		}
		supervise.LogFailure(ctx, n.Name(), err, "A simulated node failed, will start it again", "node", klog.KRef("", n.Name()), "in", restartAfter)
		supervise.Pause(ctx, restartAfter)
	}
}
