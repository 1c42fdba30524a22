package connect

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
)

// proxy passes a request on to a pod, a service or a node, named as
// [scheme:]name[:port].
func (c *Connector) proxy(info *apirequest.RequestInfo, r *http.Request, fail func(error)) (http.Handler, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(info.Name)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", strings.TrimSuffix(info.Resource, "s"), info.Name))
	}
	var u *url.URL
	var err error
	transport := c.direct
	switch info.Resource {
	case "pods":
		u, err = c.podURL(info.Namespace, name, port)
	case "services":
		u, err = c.serviceURL(info.Namespace, name, port)
	case "nodes":
		var kubelet bool
		if u, kubelet, err = c.nodeURL(name, port); kubelet {
			transport, scheme = c.kubelets, "https"
		}
	default:
		return nil, apierrors.NewBadRequest("cannot proxy to " + info.Resource)
	}
	if err != nil {
		return nil, err
	}
	if u.Scheme = scheme; scheme == "" {
		u.Scheme = "http"
	}
	if err := checkProxied(u.Hostname()); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	u.Path, u.RawQuery = proxyPath(info), r.URL.RawQuery
	handler := proxy.NewUpgradeAwareHandler(u, transport, true, false, responder(fail))
	handler.UseLocationHost = false
	return handler, nil
}

var errNotProxied = errors.New("address not allowed")

// checkProxied keeps clients from reaching what only this machine should.
func checkProxied(host string) error {
	ip := net.ParseIP(host)
	if ip != nil && (ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsInterfaceLocalMulticast()) {
		return errNotProxied
	}
	return nil
}

func (c *Connector) podURL(namespace, name, port string) (*url.URL, error) {
	pod, ok := c.pods.Get(namespace, name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	if port == "" {
		port = firstPort(pod)
	}
	if pod.Status.PodIP == "" {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available: pod %q has no IP yet", name))
	}
	if port == "" {
		return &url.URL{Host: hostOnly(pod.Status.PodIP)}, nil
	}
	return &url.URL{Host: net.JoinHostPort(pod.Status.PodIP, port)}, nil
}

func hostOnly(ip string) string {
	if strings.Contains(ip, ":") {
		return "[" + ip + "]"
	}
	return ip
}

func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// serviceURL is the address of a random ready endpoint of a service's port,
// which is given by name or number.
func (c *Connector) serviceURL(namespace, name, port string) (*url.URL, error) {
	service, ok := c.services.Get(namespace, name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name)
	}
	portName, err := servicePort(service, port)
	if err != nil {
		return nil, err
	}
	var slices []*discoveryv1.EndpointSlice
	for s := range c.slices.All(namespace) {
		if s.Labels[discoveryv1.LabelServiceName] == name {
			slices = append(slices, s)
		}
	}
	family := corev1.IPFamilyUnknown
	if len(service.Spec.IPFamilies) > 0 {
		family = service.Spec.IPFamilies[0]
	}
	host, err := streamproxy.RandomEndpoint(name, slices, portName, family, nil)
	if err != nil {
		return nil, err
	}
	return &url.URL{Host: host}, nil
}

// servicePort is the name that a service's port has in its endpoints.
func servicePort(s *corev1.Service, port string) (string, error) {
	if port == "" && len(s.Spec.Ports) == 1 {
		return s.Spec.Ports[0].Name, nil
	}
	number, _ := strconv.ParseInt(port, 10, 32)
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Name == port || number != 0 && int64(p.Port) == number {
			return p.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", port, s.Name))
}

// nodeURL is the address of a node's port; kubelet says that it is the
// kubelet's.
func (c *Connector) nodeURL(name, port string) (u *url.URL, kubelet bool, err error) {
	u, err = c.kubeletURL(name)
	if err != nil {
		return nil, false, err
	}
	if port == "" || port == u.Port() {
		return u, true, nil
	}
	return &url.URL{Host: net.JoinHostPort(u.Hostname(), port)}, false, nil
}
