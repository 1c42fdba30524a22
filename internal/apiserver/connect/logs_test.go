package connect

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// logServer serves the log of a pod until the test ends. It sends the error
// of each finished request to answered.
func logServer(t *testing.T, kubeletServes http.HandlerFunc) (address string, answered <-chan error) {
	t.Helper()
	c, _ := kubelet(t, kubeletServes)
	info := &apirequest.RequestInfo{Namespace: "default", Resource: "pods", Name: "web", Subresource: "log", Parts: []string{"pods", "web", "log"}}
	done := make(chan error, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var failed error
		defer func() { done <- failed }()
		fail := func(err error) {
			failed = err
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		options, err := c.Options(info, r)
		if err != nil {
			fail(err)
			return
		}
		h, err := c.Handler(r.Context(), info, options, r, fail)
		if err != nil {
			fail(err)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, done
}

func TestLogAsMessages(t *testing.T) {
	address, answered := logServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a line\n") })
	for protocol, want := range map[string]struct {
		kind int
		text string
	}{
		"":                     {websocket.BinaryMessage, "a line\n"},
		"binary.k8s.io":        {websocket.BinaryMessage, "a line\n"},
		"base64.binary.k8s.io": {websocket.TextMessage, "YSBsaW5lCg=="},
	} {
		dialer := websocket.Dialer{}
		if protocol != "" {
			dialer.Subprotocols = []string{protocol}
		}
		conn, response, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(address, "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil {
				if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
					t.Errorf("%q ends with %v", protocol, err)
				}
				break
			}
			if kind != want.kind {
				t.Errorf("%q: a message of kind %d, want %d", protocol, kind, want.kind)
			}
			got.Write(message)
		}
		if got.String() != want.text || conn.Subprotocol() != protocol {
			t.Errorf("%q: got %q by %q, want %q", protocol, got.String(), conn.Subprotocol(), want.text)
		}
		if err := errors.Join(response.Body.Close(), conn.Close(), <-answered); err != nil {
			t.Error(err)
		}
	}
}

// The request to the kubelet ends after a failed handshake, and when the
// client disconnects while the log is quiet.
func TestLogAsMessagesEnds(t *testing.T) {
	begun, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	address, answered := logServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	ends := func(what string) {
		t.Helper()
		late := time.After(time.Minute)
		for _, c := range []<-chan struct{}{begun, ended} {
			select {
			case <-c:
			case <-late:
				t.Fatalf("%s: the kubelet's request does not end", what)
			}
		}
		select {
		case err := <-answered:
			t.Logf("%s: the request has ended: %v", what, err)
		case <-late:
			t.Fatalf("%s: the request does not end", what)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"?follow=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "12", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("another version of WebSocket: %s", response.Status)
	}
	ends("a handshake that fails")

	conn, response, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(address, "http")+"?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(response.Body.Close(), conn.Close())
	ends("a client that leaves")
}

// hijackable is a ResponseWriter whose connection can be hijacked.
type hijackable struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}

// The stream to a client that reads nothing ends when the client closes it,
// or at the limit for HTTP clients.
func TestLogAsMessagesUnread(t *testing.T) {
	const limit = time.Hour
	for name, c := range map[string]struct {
		sends  []byte
		within time.Duration
	}{"at the limit": {nil, limit}, "with a goodbye": {[]byte{0x88, 0x80, 0, 0, 0, 0}, 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer func() { _ = theirs.Close() }()
				r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
				for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
					r.Header.Set(name, value)
				}
				answered := make(chan error, 1)
				go func() {
					w := httpserver.LimitUnread(hijackable{httptest.NewRecorder(), ours}, limit)
					answered <- messages(w, r, strings.NewReader("a line\n"), func() {})
				}()
				response, err := http.ReadResponse(bufio.NewReaderSize(theirs, 16), nil) //nolint:bodyclose // the test reads the stream
				if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
					t.Fatal(response, err)
				}
				synctest.Wait()
				begun := time.Now()
				if _, err := theirs.Write(c.sends); err != nil {
					t.Fatal(err)
				}
				if err := <-answered; err != nil || time.Since(begun) > c.within {
					t.Errorf("ended after %v with %v", time.Since(begun), err)
				}
			})
		})
	}
}
