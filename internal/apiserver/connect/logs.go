package connect

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/coracle-io/coracle/internal/supervise"
)

// log streams a container's log from its kubelet. For a pod without a node
// the log is empty.
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

// errorBody is how many bytes of a kubelet's error are read.
const errorBody = 32 << 10

// copyLog streams a log: as WebSocket messages if the client asked for that,
// else as the response body. Errors after the first byte end the stream.
func copyLog(w http.ResponseWriter, r *http.Request, transport http.RoundTripper, u *url.URL, pod string, follow bool) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
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
		return messages(w, r, response.Body, cancel)
	}
	contentType := response.Header.Get("Content-Type")
	if contentType == "" {
		contentType = "text/plain"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush() // the first line may come late
	var out io.Writer = w
	if follow {
		out = flushing{w, control}
	}
	_, _ = io.Copy(out, response.Body)
	return nil
}

// messages sends a stream over a WebSocket: as binary messages or as text in
// base64, after an empty message. It calls end when the client has
// disconnected. Errors after the handshake end the stream.
func messages(w http.ResponseWriter, r *http.Request, stream io.Reader, end func()) error {
	known := wsstream.NewDefaultReaderProtocols()
	var chosen []string
	if asked := websocket.Subprotocols(r); len(asked) > 0 {
		i := slices.IndexFunc(asked, func(p string) bool { _, ok := known[p]; return ok })
		if i < 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("a log is not sent by the WebSocket protocol %q: ask for binary.k8s.io or base64.binary.k8s.io", strings.Join(asked, ",")))
		}
		chosen = asked[i : i+1]
	}
	upgrader := websocket.Upgrader{
		CheckOrigin:  func(*http.Request) bool { return true },
		Subprotocols: chosen,
		Error:        func(http.ResponseWriter, *http.Request, int, error) {},
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return apierrors.NewBadRequest("unable to open a WebSocket: " + err.Error())
	}
	reading := func() error {
		defer end()
		defer func() { _ = conn.Close() }() // also interrupts a write
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return err
			}
		}
	}
	sending := func() error {
		defer func() { _ = conn.Close() }()
		return sendMessages(conn, stream, known[conn.Subprotocol()].Binary)
	}
	supervise.ForEach(2, func(i int) error { return []func() error{reading, sending}[i]() })
	return nil
}

// messageSize is the maximal size of a message in bytes before encoding.
const messageSize = 2 << 10

func sendMessages(conn *websocket.Conn, stream io.Reader, binary bool) error {
	send := func(data []byte) error { return conn.WriteMessage(websocket.BinaryMessage, data) }
	if !binary {
		send = func(data []byte) error {
			return conn.WriteMessage(websocket.TextMessage, []byte(base64.StdEncoding.EncodeToString(data)))
		}
	}
	err := send(nil)
	part := make([]byte, messageSize)
	for err == nil {
		var n int
		n, err = stream.Read(part)
		if n > 0 {
			err = errors.Join(send(part[:n]), err)
		}
	}
	end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	return errors.Join(err, conn.WriteControl(websocket.CloseMessage, end, time.Now().Add(time.Second)))
}

// kubeletError converts a kubelet's error response to an API error.
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

// flushing is a writer that flushes after each write.
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
