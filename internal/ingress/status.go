package ingress

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
)

// syncStatus writes the addresses of an Ingress of this controller if it has others.
func (c *Controller) syncStatus(ctx context.Context, key controller.Key) error {
	i := objectOf[*networkingv1.Ingress](c.ingresses, key.Namespace, key.Name)
	if i == nil || i.DeletionTimestamp != nil {
		return nil
	}
	c.mu.Lock()
	served := c.served[i.UID]
	c.mu.Unlock()
	if !served {
		return nil
	}
	want := c.addresses()(i.Status.LoadBalancer.Ingress)
	if equality.Semantic.DeepEqual(i.Status.LoadBalancer.Ingress, want) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": i.UID, "resourceVersion": i.ResourceVersion},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": want}},
	})
	if err != nil {
		return err
	}
	_, err = c.Client.Kubernetes.NetworkingV1().Ingresses(i.Namespace).Patch(ctx, i.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return controller.IgnoreNotFound(err)
}

// addresses returns what returns the addresses of an Ingress that has some: those of this
// node while a port is open and the node is there, and those that other nodes have given,
// which serve it as well. Other servers take the addresses of a node that was deleted away.
func (c *Controller) addresses() func(has []networkingv1.IngressLoadBalancerIngress) []networkingv1.IngressLoadBalancerIngress {
	others, isThere := map[string]bool{}, false
	for _, n := range allOf[*v1.Node](c.nodes) {
		isThere = isThere || c.isOwn(n)
		for _, a := range n.Status.Addresses {
			others[a.Address] = !slices.Contains(c.Addresses, a.Address)
		}
	}
	var own []networkingv1.IngressLoadBalancerIngress
	if isThere && c.ports.open() {
		for _, a := range c.Addresses {
			own = append(own, networkingv1.IngressLoadBalancerIngress{IP: a})
		}
	}
	return func(has []networkingv1.IngressLoadBalancerIngress) []networkingv1.IngressLoadBalancerIngress {
		want := slices.DeleteFunc(slices.Clone(has), func(p networkingv1.IngressLoadBalancerIngress) bool { return p.IP == "" || !others[p.IP] })
		want = append(want, own...)
		slices.SortFunc(want, func(a, b networkingv1.IngressLoadBalancerIngress) int { return cmp.Compare(a.IP, b.IP) })
		return want
	}
}

// isOwn reports whether a node is the one of this controller.
func (c *Controller) isOwn(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return slices.Contains(c.Addresses, a.Address) })
}
