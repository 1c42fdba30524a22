package connect

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/logging"
)

// Query parameters of the kubelet's exec and attach.
const (
	stdinParameter   = "input"
	stdoutParameter  = "output"
	stderrParameter  = "error"
	ttyParameter     = "tty"
	commandParameter = "command"
)

// responder reports the errors of a proxy.
type responder func(error)

// Error implements proxy.ErrorResponder.
func (fail responder) Error(_ http.ResponseWriter, _ *http.Request, err error) { fail(asStatus(err)) }

// asStatus returns API errors as they are, and other errors as an unreachable
// backend.
func asStatus(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status
	}
	return apierrors.NewInternalError(err)
}

func (c *Connector) exec(pod *corev1.Pod, o *corev1.PodExecOptions, fail func(error)) (http.Handler, error) {
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return nil, err
	}
	params := streamParameters(o.Stdin, o.Stdout, o.Stderr, o.TTY)
	for _, part := range o.Command {
		params.Add(commandParameter, part)
	}
	u, err := c.location(pod, fmt.Sprintf("/exec/%s/%s/%s", pod.Namespace, pod.Name, container), params)
	if err != nil {
		return nil, err
	}
	return c.streams(u, pod.Spec.NodeName, streamproxy.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}, fail), nil
}

func (c *Connector) attach(pod *corev1.Pod, o *corev1.PodAttachOptions, fail func(error)) (http.Handler, error) {
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return nil, err
	}
	u, err := c.location(pod, fmt.Sprintf("/attach/%s/%s/%s", pod.Namespace, pod.Name, container), streamParameters(o.Stdin, o.Stdout, o.Stderr, o.TTY))
	if err != nil {
		return nil, err
	}
	return c.streams(u, pod.Spec.NodeName, streamproxy.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}, fail), nil
}

func streamParameters(stdin, stdout, stderr, tty bool) url.Values {
	params := url.Values{}
	for name, wanted := range map[string]bool{stdinParameter: stdin, stdoutParameter: stdout, stderrParameter: stderr, ttyParameter: tty} {
		if wanted {
			params.Set(name, "1")
		}
	}
	return params
}

// streams proxies an upgraded connection to the kubelet of a node. WebSocket
// streams with the v5 protocol, which can close single streams, are translated
// to SPDY if the kubelet does not understand them.
func (c *Connector) streams(u *url.URL, node string, o streamproxy.Options, fail func(error)) http.Handler {
	handler := c.upgrade(u, fail)
	if !c.translates(feature.TranslateStreamCloseWebsocketRequests, node) {
		return logging.Streams(handler)
	}
	to, over := httpserver.Upgrading(u, c.kubelets)
	translator := streamproxy.NewStreamTranslatorHandler(to, over, 0, o)
	return logging.Streams(streamproxy.NewTranslatingHandler(handler, translator, wsstream.IsWebSocketRequestWithStreamCloseProtocol))
}

// translates reports whether this server translates the WebSockets of a gate for
// a node: the gate is on, and the kubelet has not declared that it does so itself.
func (c *Connector) translates(gate feature.Gate, node string) bool {
	if !c.features.Enabled(gate) {
		return false
	}
	const byKubelet = feature.ExtendWebSocketsToKubelet
	n, ok := c.nodes.Get("", node)
	return !ok || !c.features.Enabled(byKubelet) || !slices.Contains(n.Status.DeclaredFeatures, string(byKubelet))
}

// upgrade proxies a connection that must be upgraded.
func (c *Connector) upgrade(u *url.URL, fail func(error)) *proxy.UpgradeAwareHandler {
	to, over := httpserver.Upgrading(u, c.kubelets)
	return proxy.NewUpgradeAwareHandler(to, over, false, true, responder(fail))
}

func (c *Connector) portForward(pod *corev1.Pod, o *corev1.PodPortForwardOptions, fail func(error)) (http.Handler, error) {
	params := url.Values{}
	for _, port := range o.Ports {
		params.Add("port", fmt.Sprint(port))
	}
	u, err := c.location(pod, fmt.Sprintf("/portForward/%s/%s", pod.Namespace, pod.Name), params)
	if err != nil {
		return nil, err
	}
	handler := c.upgrade(u, fail)
	if !c.translates(feature.PortForwardWebsockets, pod.Spec.NodeName) {
		return logging.Streams(handler), nil
	}
	tunnel := streamproxy.NewTunnelingHandler(handler)
	return logging.Streams(streamproxy.NewTranslatingHandler(handler, tunnel, wsstream.IsWebSocketRequestWithTunnelingProtocol)), nil
}
