package connect

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// flood answers with very many headers.
func flood(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n")
	more := strings.Repeat("X-More: and more\r\n", 1024)
	for n := 0; n < 1024 && err == nil; n++ {
		_, err = io.WriteString(conn, more)
	}
}

// The headers of kubelets and pods are bounded, also in answers to requests to upgrade a
// connection.
func TestManyHeaders(t *testing.T) {
	c, _ := kubelet(t, flood)
	plain, spdy := http.Header{}, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	tunnel := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
		"Sec-Websocket-Protocol": {"SPDY/3.1+portforward.k8s.io"},
	}
	const tooLong, exceeded = "to a request to upgrade the connection is too long", "response headers exceeded 65536 bytes"
	for _, test := range []struct {
		resource, name, subresource string
		header                      http.Header
		want                        string
	}{
		{"pods", "https:web:8080", "proxy", plain, exceeded},
		{"pods", "https:web:8080", "proxy", spdy, tooLong},
		{"nodes", "one", "proxy", plain, exceeded},
		{"nodes", "one", "proxy", spdy, tooLong},
		{"pods", "web", "log", plain, exceeded},
		{"pods", "web", "exec", spdy, tooLong},
		{"pods", "web", "attach", spdy, tooLong},
		{"pods", "web", "portforward", spdy, tooLong},
		{"pods", "web", "portforward", tunnel, tooLong},
	} {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/"+test.resource+"/"+test.name+"/"+test.subresource+"?command=x&stdout=true", nil)
		r.Header = test.header.Clone()
		info := &apirequest.RequestInfo{
			Namespace: "default", Resource: test.resource, Name: test.name, Subresource: test.subresource, Path: r.URL.Path,
			Parts: []string{test.resource, test.name, test.subresource},
		}
		options, err := c.Options(info, r)
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		h, err := c.Handler(r.Context(), info, options, r, func(err error) { failed = err })
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if failed == nil || !strings.Contains(failed.Error(), test.want) {
			t.Errorf("%+v: %v", test, failed)
		}
	}
}

// They are also bounded where streams of WebSockets are translated.
func TestManyHeadersOfATranslatedStream(t *testing.T) {
	c, _ := kubelet(t, flood)
	server := httptest.NewServer(execHandler(t, c))
	defer server.Close()
	dialer := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, response, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+"?command=x&stdout=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(response.Body.Close(), conn.Close()); err != nil {
			t.Error(err)
		}
	}()
	for text := ""; !strings.Contains(text, "is too long"); {
		_, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatalf("%q, then %v", text, err)
		}
		text = string(message)
	}
}
