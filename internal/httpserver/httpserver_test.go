package httpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// patience bounds the wait for an answer. It says nothing of speed.
const patience = 3 * time.Minute

// serve starts a server that runs until the test ends. change may alter the
// server and its listener before it starts.
func serve(t *testing.T, handler http.HandlerFunc, change func(*http.Server, *Listener)) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded, server := NewListener(listener), New(context.Background(), handler, nil)
	change(server, bounded)
	done := make(chan error, 1)
	go func() { done <- server.Serve(bounded) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ask makes a request on a connection. Any status but 200 is an error.
func ask(conn net.Conn, path string) error {
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// closed fails the test unless the server ends the connection.
func closed(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s keeps its connection", what)
		}
	}
}

// A client that is slow with headers, with a body or with reading the response
// is disconnected. A stream lasts.
func TestSlowClients(t *testing.T) {
	const limit = 5 * time.Second // for the stream's headers as well, on a machine that may stop for a moment
	last, cut := make(chan struct{}), make(chan error, 1)
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/read":
			_, _ = io.Copy(io.Discard, r.Body)
		case "/write":
			chunk := make([]byte, 1<<20)
			for {
				if _, err := w.Write(chunk); err != nil {
					cut <- err
					return
				}
			}
		case "/stream":
			Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-last
				if r.Context().Err() != nil {
					t.Error("a stream was cut")
				}
				_, _ = io.WriteString(w, "still there")
			})).ServeHTTP(w, r)
		}
	}, func(s *http.Server, _ *Listener) {
		s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = limit, limit, limit, limit
	})
	stream := dial(t, address)
	if _, err := io.WriteString(stream, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	slow := map[string]net.Conn{}
	for what, begin := range map[string]string{
		"a client that says nothing":             "",
		"a client that does not end its headers": "GET / HTTP/1.1\r\nHost: x\r\n",
		"a client that does not end its body":    "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx",
		"a client that sends no next request":    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		slow[what] = dial(t, address)
		if _, err := io.WriteString(slow[what], begin); err != nil {
			t.Fatal(err)
		}
	}
	unread := dial(t, address)
	if _, err := io.WriteString(unread, "GET /write HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for what, conn := range slow {
		closed(t, what, conn)
	}
	if err := <-cut; err == nil {
		t.Error("the response to a client that reads nothing goes on")
	}
	close(last)
	response, err := http.ReadResponse(bufio.NewReader(stream), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "still there" {
		t.Errorf("a stream after all that: %q %v", body, err)
	}
	_ = response.Body.Close()
}

// When there are too many unknown clients, the oldest is disconnected.
// Authenticated clients stay.
func TestUnknownClientsAreBounded(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/known" {
			MarkAuthenticated(r.Context(), &user.DefaultInfo{Name: "friend"})
		}
	}, func(_ *http.Server, d *Listener) { d.limits.unknown = 10 })
	friend, stranger := dial(t, address), dial(t, address)
	if err := errors.Join(ask(friend, "/known"), ask(stranger, "/")); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		dial(t, address)
	}
	late := dial(t, address)
	if err := ask(late, "/known"); err != nil {
		t.Errorf("a new client: %v", err)
	}
	if err := ask(friend, "/"); err != nil {
		t.Errorf("a known client after many unknown ones: %v", err)
	}
	closed(t, "the stranger that came first", stranger)
}

// A listener stops counting connections that are closed.
func TestListenerRemovesClosedConnections(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := NewListener(listener)
	defer func() { _ = bounded.Close() }()
	dial(t, listener.Addr().String())
	conn, err := bounded.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if bounded.unknown.Len() != 1 {
		t.Errorf("%d unknown connections, want 1", bounded.unknown.Len())
	}
	if !MarkAuthenticated(withConnection(context.Background(), conn), &user.DefaultInfo{Name: "friend"}) || bounded.unknown.Len() != 0 || bounded.known.Len() != 1 {
		t.Errorf("%d unknown and %d known connections", bounded.unknown.Len(), bounded.known.Len())
	}
	if err := conn.Close(); err != nil || bounded.known.Len() != 0 || len(bounded.users) != 0 {
		t.Errorf("%v, %d connections of %v", err, bounded.known.Len(), bounded.users)
	}
	if strings.TrimSpace(conn.LocalAddr().String()) == "" {
		t.Error("a connection has no address")
	}
}
