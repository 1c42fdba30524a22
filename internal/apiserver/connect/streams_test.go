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
func execHandler(t *testing.T, c *Connector) http.HandlerFunc {
	info := &apirequest.RequestInfo{Namespace: "default", Resource: "pods", Name: "web", Subresource: "exec"}
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
