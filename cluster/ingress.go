package cluster

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/component"
)

// ports returns the ports of HTTP and HTTPS.
func (i IngressOptions) ports() (http, https int) {
	return cmp.Or(i.HTTPPort, clusterdefaults.IngressHTTPPort), cmp.Or(i.HTTPSPort, clusterdefaults.IngressHTTPSPort)
}

// check returns an error for what cannot be the ports.
func (i IngressOptions) check() error {
	for _, port := range []namedPort{{"Node.Ingress.HTTPPort", i.HTTPPort}, {"Node.Ingress.HTTPSPort", i.HTTPSPort}} {
		if port.value < 0 || port.value > 65535 {
			return wrong(port.field, strconv.Itoa(port.value), "want a port from 1 to 65535")
		}
	}
	if http, https := i.ports(); http == https {
		return wrong("Node.Ingress.HTTPSPort", strconv.Itoa(https), "it is the port of HTTP, too: choose another one")
	}
	return nil
}

// servesIngresses reports whether the node has an ingress controller. A further node has
// an address that only the machine reaches, and one that has joined may not read the keys
// of others.
func (o *settings) servesIngresses() bool {
	return !o.Node.Ingress.Off && !o.further() && !o.joined()
}

// ingressPorts returns the ports at which the node serves Ingresses; none if it does not. A
// port of the cluster itself, such as 443 of an API server, is not among them: pods reach it
// whatever their policies say.
func (o *settings) ingressPorts() []uint16 {
	if !o.servesIngresses() {
		return nil
	}
	var ports []uint16
	http, https := o.Node.Ingress.ports()
	for _, port := range []int{http, https} {
		if !slices.Contains(o.Ports.all(), port) {
			ports = append(ports, uint16(port))
		}
	}
	return ports
}

// configureIngress gives the node an ingress controller, if it has one.
func (n *Node) configureIngress() {
	if !n.settings.servesIngresses() {
		return
	}
	n.ingress = component.NewIngress()
	n.ingress.NodeName, n.ingress.Addresses = n.kubelet.Config.NodeName, n.reachable()
	n.ingress.HTTPPort, n.ingress.HTTPSPort = n.settings.Node.Ingress.ports()
	n.proxy.Collectors = append(n.proxy.Collectors, n.ingress.Metrics)
}
