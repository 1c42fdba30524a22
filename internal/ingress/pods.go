package ingress

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// byAddress is the index of pods by NAMESPACE/ADDRESS.
const byAddress = "address"

// podKeys returns the keys of a pod in the index byAddress.
func podKeys(p *v1.Pod) []string {
	var keys []string
	for _, a := range podAddresses(p) {
		keys = append(keys, p.Namespace+"/"+a.String())
	}
	return keys
}

// podAddresses returns the addresses of a pod: none once it has ended, when another pod
// may have them.
func podAddresses(p *v1.Pod) []netip.Addr {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
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

// podChanged asks for a new table if an Ingress leads to the namespace of a pod.
func (c *Controller) podChanged(p *v1.Pod) {
	c.mu.Lock()
	needed := c.namespaces[p.Namespace]
	c.mu.Unlock()
	if needed {
		c.queue.Add(struct{}{})
	}
}
