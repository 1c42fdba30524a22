package connect

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// log streams a container's log from its kubelet. A pod that is on no node yet
// has none: the answer is empty, and no error.
func (c *Connector) log(pod *corev1.Pod, o *corev1.PodLogOptions, fail func(error)) (http.Handler, error) {
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), nil
	}
	u, err := c.location(pod, fmt.Sprintf("/containerLogs/%s/%s/%s", pod.Namespace, pod.Name, container), logParameters(o))
	if err != nil {
		return nil, err
	}
	transport := c.kubelets
	if o.InsecureSkipTLSVerifyBackend {
		transport = c.unchecked
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := copyLog(w, r, transport, u, pod.Name, o.Follow); err != nil {
			fail(err)
		}
	}), nil
}

func logParameters(o *corev1.PodLogOptions) url.Values {
	params := url.Values{}
	for name, wanted := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if wanted {
			params.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			params.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		params.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	if o.Stream != nil {
		params.Set("stream", *o.Stream)
	}
	return params
}

// errorBody bounds how much of a kubelet's error is read.
const errorBody = 32 << 10

// copyLog copies a log as it comes, as messages to who asked for a WebSocket.
// Errors after the first byte end it.
func copyLog(w http.ResponseWriter, r *http.Request, transport http.RoundTripper, u *url.URL, pod string, follow bool) error {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, u.String(), nil)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("get %q: %w", u, err))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusPartialContent {
		return kubeletError(response, pod)
	}
	if wsstream.IsWebSocketRequest(r) {
		return messages(w, r, response.Body)
	}
	contentType := response.Header.Get("Content-Type")
	if contentType == "" {
		contentType = "text/plain"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush() // the log may have no line for long
	var out io.Writer = w
	if follow {
		out = flushing{w, control}
	}
	_, _ = io.Copy(out, response.Body)
	return nil
}

// messages sends a stream over a WebSocket. Errors after the handshake end it.
func messages(w http.ResponseWriter, r *http.Request, stream io.Reader) error {
	known := wsstream.NewDefaultReaderProtocols()
	if asked := r.Header.Get("Sec-WebSocket-Protocol"); asked != "" {
		supported := func(p string) bool { _, ok := known[strings.TrimSpace(p)]; return ok }
		if !slices.ContainsFunc(strings.Split(asked, ","), supported) {
			return apierrors.NewBadRequest(fmt.Sprintf("a log is not sent by the WebSocket protocol %q: ask for binary.k8s.io or base64.binary.k8s.io", asked))
		}
	}
	// The sender drops what comes together with the end; a bufio.Reader tells
	// the end by itself.
	sender := wsstream.NewReaderWithLogger(klog.FromContext(r.Context()), bufio.NewReader(stream), true, known)
	_ = sender.Copy(w, r)
	return nil
}

// kubeletError is what a kubelet answered, in the words of the API.
func kubeletError(response *http.Response, pod string) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, errorBody))
	message := string(body)
	switch response.StatusCode {
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(fmt.Errorf("%s", message))
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(message)
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, "", schema.GroupResource{Resource: "pods/log"}, pod, message, 0, true)
}

// flushing sends what is written at once.
type flushing struct {
	io.Writer
	control *http.ResponseController
}

func (f flushing) Write(data []byte) (int, error) {
	n, err := f.Writer.Write(data)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}
