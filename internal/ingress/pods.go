package ingress

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// byAddress is the index of pods, and that of EndpointSlices, by NAMESPACE/ADDRESS.
const byAddress = "address"

// podKeys returns the keys of a pod in the index byAddress.
func podKeys(p *v1.Pod) []string {
	var keys []string
	for _, a := range podAddresses(p) {
		keys = append(keys, p.Namespace+"/"+a.String())
	}
	return keys
}

// endpointKeys returns the keys of a slice in the index byAddress.
func endpointKeys(s *discoveryv1.EndpointSlice) []string {
	var keys []string
	for i := range s.Endpoints {
		if at, ok := endpointAddress(&s.Endpoints[i], 0); ok {
			keys = append(keys, s.Namespace+"/"+at.Addr().String())
		}
	}
	return keys
}

// podAddresses returns the addresses of a pod: none once it has ended, when another pod
// may have them.
func podAddresses(p *v1.Pod) []netip.Addr {
	if podquery.IsFinished(p) {
		return nil
	}
	var all []netip.Addr
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// isPod reports whether a pod of a namespace has an address.
func (c *Controller) isPod(namespace string, a netip.Addr) bool {
	keys, err := c.backends.pods.IndexKeys(byAddress, namespace+"/"+a.String())
	return err == nil && len(keys) > 0
}

// podChanged asks for the endpoints at the addresses of a pod if an Ingress leads to its
// namespace.
func (c *Controller) podChanged(p *v1.Pod) {
	keys := podKeys(p)
	c.mu.Lock()
	needed := c.leads.namespaces[p.Namespace] && len(keys) > 0
	if needed {
		c.leads.changes.add(nil, keys)
	}
	c.mu.Unlock()
	if needed {
		c.queue.Add(struct{}{})
	}
}
