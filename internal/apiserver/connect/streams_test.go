package connect

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/httpserver"
)

// chatter is a kubelet whose command writes until its connection is closed.
func chatter(ended chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
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
		for range 2 { // error and output
			s := <-streams
			if s.Headers().Get(corev1.StreamType) != corev1.StreamTypeStdout {
				continue
			}
			go func() {
				for err := error(nil); err == nil; {
					_, err = s.Write([]byte("on and on\n"))
				}
			}()
		}
		<-conn.CloseChan()
		ended <- struct{}{}
	}
}

// execHandler serves exec in the pod web. The test fails at an error.
func execHandler(t *testing.T, c *Connector) http.HandlerFunc { return streamHandler(t, c, "exec") }

// streamHandler serves a subresource of the pod web. The test fails at an error.
func streamHandler(t *testing.T, c *Connector, subresource string) http.HandlerFunc {
	info := &apirequest.RequestInfo{Namespace: "default", Resource: "pods", Name: "web", Subresource: subresource}
	return func(w http.ResponseWriter, r *http.Request) {
		options, err := c.Options(info, r)
		if err != nil {
			t.Error(err)
			return
		}
		h, err := c.Handler(r.Context(), info, options, r, func(err error) { t.Error(err) })
		if err != nil {
			t.Error(err)
			return
		}
		h.ServeHTTP(w, r)
	}
}

// A disconnected client ends the stream of its command, however much output
// is left.
func TestExecEndsWithItsClient(t *testing.T) {
	ended := make(chan struct{}, 1)
	c, _ := kubelet(t, chatter(ended))
	exec, answered := execHandler(t, c), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(answered)
		exec(httpserver.LimitUnread(w, time.Hour), r)
	}))
	defer server.Close()
	dialer := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, response, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+"?command=chat&stdout=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	for text := ""; !strings.Contains(text, "on and on"); {
		_, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		text = string(message)
	}
	if err := errors.Join(response.Body.Close(), conn.Close()); err != nil {
		t.Error(err)
	}
	late := time.After(time.Minute)
	for what, c := range map[string]<-chan struct{}{"request": answered, "command's stream": ended} {
		select {
		case <-c:
		case <-late:
			t.Fatalf("the %s does not end", what)
		}
	}
}

// A kubelet that declares that it understands WebSockets gets them as they are. Others get
// SPDY, unless the translation is off.
func TestWebSocketsOfKubelets(t *testing.T) {
	const passed, translated = "websocket", "SPDY/3.1"
	declared := string(feature.ExtendWebSocketsToKubelet)
	for _, test := range []struct {
		gates               string
		declared            []string
		streams, forwarding string
	}{
		{"", nil, translated, translated},
		{"", []string{"Another"}, translated, translated},
		{"", []string{"Another", declared}, passed, passed},
		{declared + "=false", []string{declared}, translated, translated},
		{"TranslateStreamCloseWebsocketRequests=false", nil, passed, translated},
		{"PortForwardWebsockets=false", nil, translated, passed},
	} {
		upgrades := make(chan string, 8)
		c, memory := kubelet(t, func(w http.ResponseWriter, r *http.Request) {
			upgrades <- r.Header.Get("Upgrade")
			http.Error(w, "not now", http.StatusForbidden)
		})
		node, _ := c.nodes.Get("", "one")
		node = node.DeepCopy()
		node.Status.DeclaredFeatures = test.declared
		memory.Put(objects.Nodes, node)
		var err error
		if c.features, err = feature.Parse([]string{test.gates}); err != nil {
			t.Fatal(err)
		}
		for subresource, want := range map[string]string{"exec?command=chat&stdout=true": test.streams, "attach?stdout=true": test.streams, "portforward?ports=80": test.forwarding} {
			protocol, name := "v5.channel.k8s.io", subresource[:strings.Index(subresource, "?")]
			if name == "portforward" {
				protocol = "SPDY/3.1+portforward.k8s.io"
			}
			server := httptest.NewServer(streamHandler(t, c, name))
			dialer := websocket.Dialer{Subprotocols: []string{protocol}}
			conn, response, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+strings.TrimPrefix(subresource, name), nil)
			if response != nil {
				_ = response.Body.Close()
			}
			select {
			case got := <-upgrades:
				if got != want {
					t.Errorf("%+v: %s asks the kubelet to upgrade to %q, %v", test, subresource, got, err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%+v: %s does not ask the kubelet: %v", test, subresource, err)
			}
			if err == nil {
				_ = conn.Close()
			}
			server.Close()
		}
	}
}
