package httpserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
)

// serveUsers starts a server that takes requests for /NAME as of user NAME.
func serveUsers(t *testing.T, bounds limits) string {
	return serve(t, asUser, func(_ *http.Server, d *Listener) { d.limits = bounds })
}

// asUser takes a request for /NAME as of user NAME.
func asUser(w http.ResponseWriter, r *http.Request) {
	who := &user.DefaultInfo{Name: strings.TrimPrefix(r.URL.Path, "/")}
	switch who.Name {
	case "admin":
		who.Groups = []string{user.SystemPrivilegedGroup}
	case "server":
		who.Groups = []string{"servers"}
	}
	if who.Name != "" && !MarkAuthenticated(r.Context(), who, "servers") {
		w.Header().Set("Connection", "close")
		http.Error(w, TooManyConnections, http.StatusTooManyRequests)
	}
}

// The connections of one user are bounded. Others and administrators are
// unaffected.
func TestConnectionsOfAUserAreBounded(t *testing.T) {
	address := serveUsers(t, limits{unknown: 10, known: 100, perUser: 5})
	var greedy []net.Conn
	for i := range 5 {
		greedy = append(greedy, dial(t, address))
		if err := ask(greedy[i], "/greedy"); err != nil {
			t.Fatal(err)
		}
	}
	sixth := dial(t, address)
	if err := ask(sixth, "/greedy"); err == nil || !strings.HasPrefix(err.Error(), "429") {
		t.Errorf("one connection too many: %v", err)
	}
	closed(t, "one connection too many", sixth)
	for _, who := range []string{"/other", "/admin", "/admin", "/admin", "/admin", "/admin", "/admin", "/admin", "/server", "/server", "/server", "/server", "/server", "/server"} {
		if err := ask(dial(t, address), who); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	for _, conn := range greedy {
		if err := ask(conn, "/greedy"); err != nil {
			t.Errorf("a connection from before: %v", err)
		}
	}
	_ = greedy[0].Close()
	until := time.Now().Add(patience)
	for ask(dial(t, address), "/greedy") != nil { // the server notices the close a little later
		if time.Now().After(until) {
			t.Fatal("no connection for one that ended")
		}
	}
}

// When all users together have too many connections, the namespace with most
// loses its oldest, however many of its service accounts they belong to.
func TestConnectionsOfAllAreBounded(t *testing.T) {
	address := serveUsers(t, limits{unknown: 10, known: 6, perUser: 5})
	admin, friend := dial(t, address), dial(t, address)
	if err := errors.Join(ask(admin, "/admin"), ask(friend, "/system:serviceaccount:good:friend")); err != nil {
		t.Fatal(err)
	}
	other := dial(t, address)
	if err := ask(other, "/system:serviceaccount:good:friend"); err != nil {
		t.Fatal(err)
	}
	var many []net.Conn
	for i := range 20 {
		many = append(many, dial(t, address))
		if err := ask(many[i], fmt.Sprintf("/system:serviceaccount:evil:number-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(ask(admin, "/admin"), ask(friend, "/x"), ask(other, "/x"), ask(many[19], "/x")); err != nil {
		t.Error(err)
	}
	for _, conn := range many[:16] {
		closed(t, "the oldest of the greediest", conn)
	}
}

// Unknown clients that connect as fast as they can delay no other client: it is
// answered while the flood goes on, after no more connections than the kernel
// has queued.
func TestUnknownConnectionsDelayNoClient(t *testing.T) {
	const queue = 4096 // net.core.somaxconn
	var flooded atomic.Int64
	address := serveUsers(t, limits{unknown: 64, known: 100, perUser: 100})
	stop := make(chan struct{})
	var flood sync.WaitGroup
	defer flood.Wait()
	defer close(stop)
	for range 16 {
		flood.Go(func() {
			var held []net.Conn
			defer func() {
				for _, conn := range held {
					_ = conn.Close()
				}
			}()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
					flooded.Add(1)
					held = append(held, conn)
				}
				if len(held) > 20 {
					_ = held[0].Close()
					held = held[1:]
				}
			}
		})
	}
	var waited []int64 // for how many connections of the flood
	for range 50 {
		before := flooded.Load()
		conn := dialFrom(t, "127.0.0.2", address)
		if err := ask(conn, "/friend"); err != nil {
			t.Errorf("a client in the flood: %v", err)
		}
		waited = append(waited, flooded.Load()-before)
		_ = conn.Close()
	}
	slices.Sort(waited)
	t.Logf("connections of the flood during one of a client: %v", waited)
	if waited[len(waited)/2] > 2*queue {
		t.Errorf("new connections of a client wait for %v of the flood", waited)
	}
}

func dialFrom(t *testing.T, from, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// The address with most unknown connections loses its oldest. A slow client
// from another address stays connected.
func TestEvictionFromTheAddressWithMost(t *testing.T) {
	address := serveUsers(t, limits{unknown: 10, known: 10, perUser: 10})
	slow := dialFrom(t, "127.0.0.2", address)
	defer func() { _ = slow.Close() }()
	first := dial(t, address)
	for range 30 {
		dial(t, address)
	}
	closed(t, "the oldest of the address with most", first)
	if err := ask(slow, "/friend"); err != nil {
		t.Errorf("a client from elsewhere: %v", err)
	}
}

// Headers that are not complete are bounded: those of all unknown clients, at the cost of
// who has sent most, and those of each tenant, at its own.
func TestHeadersInProgressAreBounded(t *testing.T) {
	address := serve(t, asUser, func(server *http.Server, d *Listener) {
		server.ReadHeaderTimeout, d.limits = patience, limits{unknown: 10, known: 100, perUser: 5}
	})
	begin := func(conn net.Conn, path string, bytes int) {
		// It fails if the server has ended the connection meanwhile.
		_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nX-Fill: "+strings.Repeat("x", bytes))
	}
	modest := dial(t, address)
	begin(modest, "/modest", headBytes)
	for range 3 { // from the same address, and later
		large := dial(t, address)
		begin(large, "/large", 10*headBytes)
		closed(t, "an unknown one with many headers", large)
	}
	if err := ask(dial(t, address), "/friend"); err != nil {
		t.Errorf("another client: %v", err)
	}
	if _, err := io.WriteString(modest, "\r\n\r\n"); err != nil {
		t.Error(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(modest), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("a client with few headers: %v, %v", response, err)
	}
	_ = response.Body.Close()

	greedy, again, friend := dial(t, address), dial(t, address), dial(t, address)
	if err := errors.Join(ask(greedy, "/greedy"), ask(again, "/greedy"), ask(friend, "/friend")); err != nil {
		t.Fatal(err)
	}
	begin(greedy, "/greedy", 6*headBytes)
	closed(t, "a known one with many headers", greedy)
	for range 20 { // each of them is complete
		if err := errors.Join(ask(again, "/greedy"+strings.Repeat("/x", headBytes/4)), ask(friend, "/friend")); err != nil {
			t.Fatal(err)
		}
	}
}

// Files remain for the rest of the process, and every limit lets some
// connections in.
func TestShare(t *testing.T) {
	for of, want := range map[uint64]limits{
		20_000 / 8 * 3: {unknown: 1875, known: 5625, perUser: 1000},
		1 << 20:        {unknown: 2048, known: 1<<20 - 2048, perUser: 1000},
		0:              {unknown: 64, known: 192, perUser: 64},
		1 << 63:        {unknown: 2048, known: 1<<20 - 2048, perUser: 1000},
	} {
		if got := share(of, 1); got != want {
			t.Errorf("of %d files: %+v, want %+v", of, got, want)
		}
	}
}

// Broken handshakes are not logged by default; other errors are.
func TestBrokenHandshakesAreNotLogged(t *testing.T) {
	state := klog.CaptureState()
	defer state.Restore()
	var logged bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&logged)
	server := New(t.Context(), http.NotFoundHandler(), nil)
	server.ErrorLog.Printf("http: TLS handshake error from 10.0.0.9:4711: EOF")
	server.ErrorLog.Printf("http: panic serving 10.0.0.9:4711: boom")
	klog.Flush()
	if text := logged.String(); strings.Contains(text, "handshake") || !strings.Contains(text, "boom") {
		t.Errorf("logged: %q", text)
	}
}
