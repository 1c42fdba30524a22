package connect

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
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
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// proxy returns a handler that proxies to a pod, a service or a node, named
// as [scheme:]name[:port]. A GET or HEAD without a path is redirected to the
// path with a slash, so that relative links work.
func (c *Connector) proxy(info *apirequest.RequestInfo, path string, r *http.Request, fail func(error)) (http.Handler, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(info.Name)
	if !ok || info.Resource != "services" && !isPort(port) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", strings.TrimSuffix(info.Resource, "s"), info.Name))
	}
	var u *url.URL
	var err error
	transport := c.direct
	switch info.Resource {
	case "pods":
		u, err = c.podURL(r.Context(), info.Namespace, name, port)
	case "services":
		u, err = c.serviceURL(info.Namespace, name, port)
	case "nodes":
		var kubelet bool
		if u, kubelet, err = c.nodeURL(r.Context(), name, port); kubelet {
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
	u.Path, u.RawQuery = utilnet.JoinPreservingTrailingSlash(path), r.URL.RawQuery
	if httpstream.IsUpgradeRequest(r) {
		u, transport = httpserver.Upgrading(u, transport)
	}
	handler := proxy.NewUpgradeAwareHandler(u, transport, true, false, responder(fail))
	handler.UseLocationHost = false
	return handler, nil
}

// isPort reports whether a port is a number or empty. Only services have
// named ports here.
func isPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

func notProxied() error { return apierrors.NewBadRequest("address not allowed") }

// checkProxied refuses hosts whose addresses are not global unicast ones,
// such as loopback and link-local addresses, which only this machine should
// reach, and pods without an address. Services need no check: they have only
// pods as endpoints, and EndpointSlices cannot contain such addresses.
func checkProxied(ctx context.Context, host string) error {
	if ip := net.ParseIP(host); ip != nil {
		return checkAddress(ip)
	}
	if host == "" {
		return notProxied()
	}
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	for _, a := range addresses {
		if err := checkAddress(a.IP); err != nil {
			return err
		}
	}
	return nil
}

func checkAddress(ip net.IP) error {
	if !ip.IsGlobalUnicast() {
		return notProxied()
	}
	return nil
}

func (c *Connector) podURL(ctx context.Context, namespace, name, port string) (*url.URL, error) {
	pod, ok := c.pods.Get(namespace, name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	if port == "" {
		port = firstPort(pod)
	}
	if err := checkProxied(ctx, pod.Status.PodIP); err != nil {
		return nil, err
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

// serviceURL returns the URL of a random ready endpoint of a service's port,
// given by name or number. Only endpoints that are pods of the namespace
// count, so that authors of EndpointSlices cannot reach other hosts through
// this server.
func (c *Connector) serviceURL(namespace, name, port string) (*url.URL, error) {
	service, ok := c.services.Get(namespace, name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name)
	}
	portName, err := servicePort(service, port)
	if err != nil {
		return nil, err
	}
	var all []*discoveryv1.EndpointSlice
	for s := range c.slices.All(namespace) {
		if s.Labels[discoveryv1.LabelServiceName] == name {
			all = append(all, s)
		}
	}
	family := corev1.IPFamilyUnknown
	if len(service.Spec.IPFamilies) > 0 {
		family = service.Spec.IPFamilies[0]
	}
	host, err := streamproxy.RandomEndpoint(name, all, portName, family, func(e *discoveryv1.Endpoint) bool {
		return c.isPod(namespace, e)
	})
	if err != nil {
		return nil, err
	}
	return &url.URL{Host: host}, nil
}

// isPod reports whether an endpoint is a pod of the namespace, at the pod's
// own address.
func (c *Connector) isPod(namespace string, e *discoveryv1.Endpoint) bool {
	if e.TargetRef == nil || e.TargetRef.Namespace != namespace || len(e.Addresses) == 0 {
		return false
	}
	pod, ok := c.pods.Get(namespace, e.TargetRef.Name)
	return ok && (pod.Status.PodIP == e.Addresses[0] || slices.Contains(pod.Status.PodIPs, corev1.PodIP{IP: e.Addresses[0]}))
}

// servicePort returns the name of a service's port in its endpoints. An empty
// port means the port without a name.
func servicePort(s *corev1.Service, port string) (string, error) {
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return port, nil
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; int64(p.Port) == number {
			return p.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, s.Name))
}

// nodeURL returns the URL of a node's port. kubelet reports whether that is
// the kubelet's port.
func (c *Connector) nodeURL(ctx context.Context, name, port string) (u *url.URL, kubelet bool, err error) {
	u, err = c.kubeletURL(name)
	if err != nil {
		return nil, false, err
	}
	if port == "" || port == u.Port() {
		return u, true, nil
	}
	if err := checkProxied(ctx, u.Hostname()); err != nil {
		return nil, false, err
	}
	return &url.URL{Host: net.JoinHostPort(u.Hostname(), port)}, false, nil
}
