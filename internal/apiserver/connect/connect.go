// Package connect connects API clients to nodes, pods and services: it
// implements the subresources log, exec, attach, portforward and proxy.
//
//	client ── SPDY or WebSocket ──► API server ── SPDY or WebSocket, HTTPS ──► kubelet :10250
//	          log over HTTP                                                   or a pod's or service's address
//
// WebSocket streams (v5.channel.k8s.io) are translated to SPDY, and tunnelled
// port forwards (v2) are unwrapped, for kubelets that do not declare that they
// do it themselves (ExtendWebSocketsToKubelet).
package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/httpserver"
)

// Config configures the connections to kubelets, pods and services.
type Config struct {
	// KubeletTLS authenticates this server to kubelets and verifies their
	// certificates.
	KubeletTLS *tls.Config
	// AddressTypes are the types of node addresses in the order of
	// preference; nil means InternalIP, Hostname, InternalDNS, ExternalDNS,
	// ExternalIP.
	AddressTypes []corev1.NodeAddressType
	Objects      objects.Source
	// Features are the feature gates; nil means the defaults.
	Features *feature.Set
	// Own reports whether an API server of this cluster listens at an
	// address. The connector refuses to connect to such addresses. Nil means
	// that no address is known.
	Own func(netip.AddrPort) bool
	// Dial connects to nodes and pods; nil dials the network and refuses
	// addresses that are not allowed.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Local returns what answers for the kubelet of a simulated node in this
	// process, nil for other nodes. It has no logs and runs no commands. Nil
	// means that there are no such nodes.
	Local func(node string) http.RoundTripper
}

const (
	kubeletPort = 10250
	dialTimeout = 30 * time.Second
	// maxIdle bounds the idle connections to pods and services, because each
	// pod has 65,535 ports.
	maxIdle = 25
)

// Connector implements apiserver.Connector.
type Connector struct {
	kubelets  *http.Transport
	unchecked *http.Transport // to kubelets whose certificate is not verified (insecureSkipTLSVerifyBackend)
	direct    *http.Transport // to pods and services
	addresses []corev1.NodeAddressType
	pods      objects.Reader[*corev1.Pod]
	nodes     objects.Reader[*corev1.Node]
	services  objects.Reader[*corev1.Service]
	slices    objects.Reader[*discoveryv1.EndpointSlice]
	features  *feature.Set
	local     func(node string) http.RoundTripper
}

// New returns a connector.
func New(c Config) *Connector {
	toKubelets, toPods := c.Dial, c.Dial
	if c.Dial == nil {
		toKubelets, toPods = c.dialer(isKubelets), c.dialer(netip.Addr.IsGlobalUnicast)
	}
	if c.Local == nil {
		c.Local = func(string) http.RoundTripper { return nil }
	}
	addresses := c.AddressTypes
	if addresses == nil {
		addresses = []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS, corev1.NodeExternalIP}
	}
	kubelets := &http.Transport{DialContext: toKubelets, TLSClientConfig: c.KubeletTLS, MaxIdleConns: 40 * maxIdle, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: httpserver.MaxAnswerHeaderBytes}
	unchecked := kubelets.Clone()
	if unchecked.TLSClientConfig == nil {
		unchecked.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	unchecked.TLSClientConfig.InsecureSkipVerify = true
	return &Connector{
		kubelets:  kubelets,
		unchecked: unchecked,
		direct: &http.Transport{
			DialContext: toPods, DisableCompression: true, MaxIdleConns: maxIdle, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: httpserver.MaxAnswerHeaderBytes,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // pods and services have certificates of their own making, as upstream treats them
		},
		addresses: addresses,
		pods:      objects.Of[*corev1.Pod](c.Objects, objects.Pods),
		nodes:     objects.Of[*corev1.Node](c.Objects, objects.Nodes),
		services:  objects.Of[*corev1.Service](c.Objects, objects.Services),
		slices:    objects.Of[*discoveryv1.EndpointSlice](c.Objects, objects.EndpointSlices),
		features:  c.Features,
		local:     c.Local,
	}
}

// Options decodes a request's query into the options that admission sees.
func (c *Connector) Options(info *apirequest.RequestInfo, r *http.Request) (runtime.Object, error) {
	q := query(r.URL.Query())
	switch info.Subresource {
	case "log":
		return q.logOptions(info.Name, c.features.Enabled(feature.PodLogsQuerySplitStreams))
	case "exec":
		return q.execOptions(), nil
	case "attach":
		return q.attachOptions(), nil
	case "portforward":
		return q.portForwardOptions()
	}
	return proxyOptions(info, r), nil
}

// Handler returns the handler that serves a request. The handler reports
// errors to fail.
func (c *Connector) Handler(ctx context.Context, info *apirequest.RequestInfo, options runtime.Object, r *http.Request, fail func(error)) (http.Handler, error) {
	if info.Subresource == "proxy" {
		return c.proxy(info, proxiedPath(options), r, fail)
	}
	pod, ok := c.pods.Get(info.Namespace, info.Name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, info.Name)
	}
	switch o := options.(type) {
	case *corev1.PodLogOptions:
		return c.log(pod, o, fail)
	case *corev1.PodExecOptions:
		return c.exec(pod, o, fail)
	case *corev1.PodAttachOptions:
		return c.attach(pod, o, fail)
	case *corev1.PodPortForwardOptions:
		return c.portForward(pod, o, fail)
	}
	return nil, apierrors.NewInternalError(fmt.Errorf("no way to serve %s of a pod", info.Subresource))
}

// kubeletURL returns the URL of a node's kubelet.
func (c *Connector) kubeletURL(nodeName string) (*url.URL, error) {
	node, ok := c.nodes.Get("", nodeName)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, nodeName)
	}
	if c.local(nodeName) != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("node %s is simulated: its pods have no logs and no processes", nodeName))
	}
	host, err := nodeAddress(node, c.addresses)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(portOf(node)))}, nil
}

// GetFromKubelet requests a path of a node's kubelet. It follows no redirects.
// The caller closes the body.
func (c *Connector) GetFromKubelet(ctx context.Context, nodeName, path string) (*http.Response, error) {
	u, transport := &url.URL{Scheme: "https", Host: nodeName}, c.local(nodeName)
	if transport == nil {
		var err error
		if u, err = c.kubeletURL(nodeName); err != nil {
			return nil, err
		}
		transport = c.kubelets
	}
	u.Path = path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	return transport.RoundTrip(r)
}

func portOf(node *corev1.Node) int {
	if port := node.Status.DaemonEndpoints.KubeletEndpoint.Port; port != 0 {
		return int(port)
	}
	return kubeletPort
}

// nodeAddress returns the first address of the most preferred type that the
// node has.
func nodeAddress(node *corev1.Node, preferred []corev1.NodeAddressType) (string, error) {
	for _, wanted := range preferred {
		for _, a := range node.Status.Addresses {
			if a.Type == wanted {
				return a.Address, nil
			}
		}
	}
	return "", fmt.Errorf("no preferred addresses found; known addresses: %v", node.Status.Addresses)
}

// location returns the URL of a path of the kubelet that runs a pod.
func (c *Connector) location(pod *corev1.Pod, path string, params url.Values) (*url.URL, error) {
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	u, err := c.kubeletURL(pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawQuery = path, params.Encode()
	return u, nil
}

// containerOf returns the container of a request: the one it names, or else
// the pod's only one or its default one.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	names, initNames := containerNames(pod)
	if name != "" {
		for _, n := range append(names, initNames...) {
			if n == name {
				return name, nil
			}
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	if len(pod.Spec.Containers) == 1 {
		return pod.Spec.Containers[0].Name, nil
	}
	if len(pod.Spec.Containers) == 0 {
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	}
	message := fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, names)
	if len(initNames) > 0 {
		message += fmt.Sprintf(" or one of the init containers: %v", initNames)
	}
	return "", apierrors.NewBadRequest(message)
}

func containerNames(pod *corev1.Pod) (names, initNames []string) {
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		initNames = append(initNames, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		initNames = append(initNames, pod.Spec.EphemeralContainers[i].Name)
	}
	return names, initNames
}
