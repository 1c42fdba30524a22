package cluster

import (
	"cmp"
	"strconv"

	"github.com/coracle-io/coracle/internal/component"
)

// check returns an error for what cannot be a port.
func (i IngressOptions) check() error {
	for _, port := range []namedPort{{"Node.Ingress.HTTPPort", i.HTTPPort}, {"Node.Ingress.HTTPSPort", i.HTTPSPort}} {
		if port.value < 0 || port.value > 65535 {
			return wrong(port.field, strconv.Itoa(port.value), "want a port from 1 to 65535")
		}
	}
	return nil
}

// configureIngress gives the node an ingress controller. A further node has an address
// that only the machine reaches, and one that has joined may not read the keys of
// others.
func (n *Node) configureIngress() {
	of := n.settings.Node.Ingress
	if of.Off || n.settings.further() || n.settings.joined() {
		return
	}
	n.ingress = component.NewIngress()
	n.ingress.NodeName, n.ingress.Addresses = n.kubelet.Config.NodeName, n.kubelet.Config.NodeIPs
	n.ingress.HTTPPort, n.ingress.HTTPSPort = cmp.Or(of.HTTPPort, n.ingress.HTTPPort), cmp.Or(of.HTTPSPort, n.ingress.HTTPSPort)
	n.proxy.Collectors = append(n.proxy.Collectors, n.ingress.Metrics)
}
