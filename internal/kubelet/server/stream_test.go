package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// streamingRuntime is a runtime with a streaming server. It records the
// requests for streams.
type streamingRuntime struct {
	*inmemory.Runtime
	address  string // of the streaming server
	err      error  // of each request, if not nil
	requests []any
}

func (r *streamingRuntime) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	r.requests = append(r.requests, fmt.Sprintf("exec %v in=%t out=%t err=%t tty=%t", request.GetCmd(), request.GetStdin(), request.GetStdout(), request.GetStderr(), request.GetTty()))
	return &runtimeapi.ExecResponse{Url: r.address + "/exec/token"}, r.err
}

func (r *streamingRuntime) Attach(_ context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	r.requests = append(r.requests, fmt.Sprintf("attach in=%t out=%t err=%t tty=%t", request.GetStdin(), request.GetStdout(), request.GetStderr(), request.GetTty()))
	return &runtimeapi.AttachResponse{Url: r.address + "/attach/token"}, r.err
}

func (r *streamingRuntime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r.requests = append(r.requests, fmt.Sprintf("portforward %v", request.GetPort()))
	return &runtimeapi.PortForwardResponse{Url: r.address + "/portforward/token"}, r.err
}

// echo is a streaming server that upgrades each connection and sends back what
// it receives.
func echo(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/token") {
		http.Error(w, "unknown token", http.StatusNotFound)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

// testNode is a kubelet server on a port, for the pod default/web with the running
// container main.
type testNode struct {
	t         *testing.T
	runtime   *streamingRuntime
	container string // its id
	log       string // path of the container's log
	address   string
}

func newTestNode(t *testing.T, configure func(*Config)) *testNode {
	t.Helper()
	streaming := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(streaming.Close)
	n := &testNode{t: t, runtime: &streamingRuntime{Runtime: inmemory.New(), address: streaming.URL}}
	pod, dir := onePod{}.Pods()[0], t.TempDir()
	n.log = filepath.Join(dir, "main.log")
	sandbox, err := n.runtime.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)}, Labels: cri.PodLabels(pod),
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	n.container, err = n.runtime.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Labels: cri.ContainerLabels(pod, "main"), LogPath: n.log,
		Annotations: cri.ContainerAnnotations(pod, &v1.Container{Name: "main"}, 0, 0, "hash"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.runtime.StartContainer(t.Context(), n.container); err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t)
	s.config.Runtime = n.runtime
	if configure != nil {
		configure(&s.config)
	}
	served := s.Handler()
	if s.config.Authorizer != nil {
		served = s.authorized(served)
	}
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	n.address = server.Listener.Addr().String()
	return n
}

// upgrade sends a request for a stream and returns the connection and the
// status code of the answer.
func (n *testNode) upgrade(path string) (net.Conn, *bufio.Reader, int) {
	n.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(n.t.Context(), "tcp", n.address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		n.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", path); err != nil {
		n.t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		n.t.Fatalf("%s: %v", path, err)
	}
	_ = answer.Body.Close()
	return conn, r, answer.StatusCode
}

func TestStreamsReachTheRuntime(t *testing.T) {
	n := newTestNode(t, nil)
	for _, path := range []string{
		"/exec/default/web/main?command=sh&command=-c&stdin=true&stdout=true&stderr=true",
		"/exec/default/web/uid/main?command=sh&input=1&output=1&error=1&tty=1",
		"/attach/default/web/main?output=1",
		"/portForward/default/web?port=80&ports=443",
		"/portForward/default/web/uid",
	} {
		conn, r, code := n.upgrade(path)
		if code != http.StatusSwitchingProtocols {
			t.Errorf("%s: %d", path, code)
			continue
		}
		if _, err := io.WriteString(conn, "ping\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadString('\n'); got != "ping\n" || err != nil {
			t.Errorf("%s: the stream carries %q, %v", path, got, err)
		}
		_ = conn.Close()
	}
	want := []any{
		"exec [sh -c] in=true out=true err=true tty=false",
		"exec [sh] in=true out=true err=false tty=true", // a terminal has no stderr of its own
		"attach in=false out=true err=false tty=false",
		"portforward [80 443]",
		"portforward []",
	}
	if diff := cmp.Diff(want, n.runtime.requests); diff != "" {
		t.Errorf("requests to the runtime (-want +got):\n%s", diff)
	}
}

// greeter is a streaming server that speaks SPDY alone. Its commands print a line.
func greeter(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for range 2 { // error and output
		s := <-streams
		if s.Headers().Get(v1.StreamType) == v1.StreamTypeStdout {
			_, _ = io.WriteString(s, "hello\n")
		}
		_ = s.Close()
	}
	<-conn.CloseChan()
}

// WebSockets are translated for the runtime, unless that is off.
func TestWebSocketStreams(t *testing.T) {
	for gates, want := range map[string]string{"": "\x01hello\n", "ExtendWebSocketsToKubelet=false": ""} {
		features, err := feature.Parse([]string{gates})
		if err != nil {
			t.Fatal(err)
		}
		n := newTestNode(t, func(c *Config) { c.Features = features })
		streaming := httptest.NewServer(http.HandlerFunc(greeter))
		n.runtime.address = streaming.URL
		dialer, got := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}, ""
		conn, response, err := dialer.DialContext(t.Context(), "ws://"+n.address+"/exec/default/web/main?command=sh&output=1", nil)
		if response != nil {
			_ = response.Body.Close()
		}
		if (err == nil) != (want != "") {
			t.Errorf("%q: the connection was upgraded: %t, %v", gates, err == nil, err)
		}
		for err == nil && got != want {
			var message []byte
			if _, message, err = conn.ReadMessage(); err == nil && len(message) > 1 {
				got = string(message)
			}
		}
		if got != want {
			t.Errorf("%q: the stream carries %q, %v", gates, got, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		streaming.Close()
	}
}

func TestStreamErrors(t *testing.T) {
	n := newTestNode(t, nil)
	for path, want := range map[string]int{
		"/exec/default/web/main?command=sh":                     http.StatusBadRequest, // without streams
		"/attach/default/web/main":                              http.StatusBadRequest,
		"/exec/default/web/other/main?command=sh&stdout=1":      http.StatusNotFound,
		"/exec/default/web/sidecar?command=sh&stdout=1":         http.StatusNotFound,
		"/portForward/default/web?port=0":                       http.StatusBadRequest,
		"/portForward/default/web?port=65536":                   http.StatusBadRequest,
		"/portForward/default/web?port=http":                    http.StatusBadRequest,
		"/portForward/default/other?port=80":                    http.StatusNotFound,
		"/run/default/web/main":                                 http.StatusBadRequest,
		"/exec/default/web/main?command=sh&stdout=0&stderr=yes": http.StatusBadRequest,
	} {
		if _, _, code := n.upgrade(path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if len(n.runtime.requests) > 0 {
		t.Errorf("the runtime was asked for %v", n.runtime.requests)
	}
	n.runtime.err = errors.New("the runtime is away")
	for _, path := range []string{"/exec/default/web/main?command=sh&stdout=1", "/attach/default/web/main?stdout=1", "/portForward/default/web?port=80"} {
		if _, _, code := n.upgrade(path); code != http.StatusInternalServerError {
			t.Errorf("%s without a runtime: %d", path, code)
		}
	}
	n.runtime.err = nil
	n.runtime.address = "http://127.0.0.1:1" // a port that nothing listens on
	if _, _, code := n.upgrade("/exec/default/web/main?command=sh&stdout=1"); code < 500 {
		t.Errorf("without a streaming server: %d", code)
	}
}

func TestStreamOfAnExitedContainerIsRefused(t *testing.T) {
	n := newTestNode(t, nil)
	n.runtime.Exit(n.container, 0)
	for _, path := range []string{"/exec/default/web/main?command=sh&stdout=1", "/attach/default/web/main?stdout=1", "/run/default/web/main?cmd=sh"} {
		if _, _, code := n.upgrade(path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func TestIdleStreamsAreClosed(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Configuration.StreamingConnectionIdleTimeout.Duration = 50 * time.Millisecond })
	for _, path := range []string{"/exec/default/web/main?command=sh&stdout=1", "/attach/default/web/main?stdout=1", "/portForward/default/web?port=80"} {
		_, r, code := n.upgrade(path)
		if code != http.StatusSwitchingProtocols {
			t.Errorf("%s: %d", path, code)
			continue
		}
		if _, err := r.ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
			t.Errorf("%s: an idle stream ended with %v, want the server to close it", path, err)
		}
	}
}

// authenticateAll authenticates every request as alice.
func authenticateAll(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: "alice"}}, true, nil
}

// allow returns an authorizer that allows one verb on nodes/proxy.
func allow(verb string) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == verb && a.GetResource() == "nodes" && a.GetSubresource() == "proxy" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// The permission to read logs (get nodes/proxy) does not permit commands (create
// nodes/proxy), although WebSockets begin with GET.
func TestStreamsRequireCreate(t *testing.T) {
	paths := []string{"/exec/default/web/main?command=sh&stdout=1", "/attach/default/web/main?stdout=1", "/portForward/default/web?port=80"}
	for verb, want := range map[string]int{"get": http.StatusForbidden, "create": http.StatusSwitchingProtocols} {
		n := newTestNode(t, func(c *Config) {
			c.Authenticator, c.Authorizer = authenticator.RequestFunc(authenticateAll), allow(verb)
		})
		for _, path := range paths {
			if _, _, code := n.upgrade(path); code != want {
				t.Errorf("%s by a user with %s nodes/proxy: %d, want %d", path, verb, code, want)
			}
		}
		if got := len(n.runtime.requests); (got > 0) != (want == http.StatusSwitchingProtocols) {
			t.Errorf("the runtime got %d requests of a user with %s", got, verb)
		}
	}
}

// logs requests a log and returns its body, unread.
func (n *testNode) logs(ctx context.Context, query string) (code int, body io.Reader) {
	n.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address+"/containerLogs/default/web/main?"+query, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer.StatusCode, answer.Body
}

func (n *testNode) appendLog(lines string) {
	n.t.Helper()
	f, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(lines)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

const twoLines = "2026-11-21T07:00:00Z stdout F one\n2026-11-21T07:00:01Z stderr F two\n"

func TestLogQueries(t *testing.T) {
	n := newTestNode(t, nil)
	n.appendLog(twoLines)
	for query, want := range map[string]string{
		"": "one\ntwo\n", "stream=Stdout": "one\n", "stream=Stderr": "two\n", "stream=All": "one\ntwo\n", "tailLines=1": "two\n",
		"tailLines=all": "one\ntwo\n", "limitBytes=2": "on", "timestamps=true&limitBytes=10": "2026-11-21", "sinceTime=2026-11-21T07:00:01Z": "two\n",
		"sinceSeconds=9223372036854775807": "one\ntwo\n",
	} {
		code, body := n.logs(t.Context(), query)
		raw, err := io.ReadAll(body)
		if err != nil || code != http.StatusOK || string(raw) != want {
			t.Errorf("%s: %d %q, %v, want %q", query, code, raw, err, want)
		}
	}
}

// A followed log sends lines as they are written, and ends with the container.
func TestLogFollow(t *testing.T) {
	n := newTestNode(t, nil)
	n.appendLog(twoLines)
	_, body := n.logs(t.Context(), "follow=true")
	r := bufio.NewReader(body)
	expect := func(want string) {
		t.Helper()
		if got, err := r.ReadString('\n'); got != want || err != nil {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}
	expect("one\n")
	expect("two\n")
	n.appendLog("2026-11-21T07:00:02Z stdout F three\n")
	expect("three\n")
	n.runtime.Exit(n.container, 0)
	if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
		t.Errorf("after the container's end: %q, %v", rest, err)
	}
}

// The handler of a followed log returns when its client goes away.
func TestLogFollowEndsWithItsClient(t *testing.T) {
	s := newTestNode(t, nil)
	s.appendLog(twoLines)
	ctx, cancel := context.WithCancel(t.Context())
	_, body := s.logs(ctx, "follow=true")
	if _, err := bufio.NewReader(body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel() // the cleanup waits for open requests
}
