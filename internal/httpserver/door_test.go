package httpserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
)

// serveKnown serves requests for /NAME as of user NAME.
func serveKnown(t *testing.T, most limits) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		who := &user.DefaultInfo{Name: strings.TrimPrefix(r.URL.Path, "/")}
		switch who.Name {
		case "admin":
			who.Groups = []string{user.SystemPrivilegedGroup}
		case "server":
			who.Groups = []string{"servers"}
		}
		if who.Name != "" && !Known(r.Context(), who, "servers") {
			w.Header().Set("Connection", "close")
			http.Error(w, TooMany, http.StatusTooManyRequests)
		}
	}, func(_ *http.Server, d *Door) { d.limits = most })
}

// One user has so many connections and no more; others, and administrators,
// do not notice.
func TestConnectionsOfAUserAreBounded(t *testing.T) {
	address := serveKnown(t, limits{unknown: 10, known: 100, perUser: 5})
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
	until := time.Now().Add(10 * time.Second)
	for ask(dial(t, address), "/greedy") != nil { // the server learns of the end a little later
		if time.Now().After(until) {
			t.Fatal("no connection for one that ended")
		}
	}
}

// When all together have too many, the namespace that has most loses its
// oldest, however many service accounts it shares them out to.
func TestConnectionsOfAllAreBounded(t *testing.T) {
	address := serveKnown(t, limits{unknown: 10, known: 6, perUser: 5})
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

// Strangers who connect as fast as they can keep no client waiting.
func TestAFloodOfStrangersKeepsNobodyWaiting(t *testing.T) {
	address := serveKnown(t, limits{unknown: 64, known: 100, perUser: 100})
	stop := make(chan struct{})
	var strangers sync.WaitGroup
	defer strangers.Wait()
	defer close(stop)
	for range 16 {
		strangers.Go(func() {
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
					held = append(held, conn)
				}
				if len(held) > 20 {
					_ = held[0].Close()
					held = held[1:]
				}
			}
		})
	}
	var took []time.Duration
	for range 50 {
		began := time.Now()
		conn := dialFrom(t, "127.0.0.2", address)
		if err := ask(conn, "/friend"); err != nil {
			t.Errorf("a client in the flood: %v", err)
		}
		took = append(took, time.Since(began))
		_ = conn.Close()
	}
	slices.Sort(took)
	if took[len(took)/2] > 100*time.Millisecond { // the flood takes processor time, too
		t.Errorf("new connections of a client took %v", took)
	}
}

func dialFrom(t *testing.T, from, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// The address that has most unknown connections loses its oldest; a client
// from elsewhere may take its time.
func TestStrangersDisplaceTheirOwn(t *testing.T) {
	address := serveKnown(t, limits{unknown: 10, known: 10, perUser: 10})
	slow := dialFrom(t, "127.0.0.2", address)
	defer func() { _ = slow.Close() }()
	first := dial(t, address)
	for range 30 {
		dial(t, address)
	}
	closed(t, "the oldest of the crowd", first)
	if err := ask(slow, "/friend"); err != nil {
		t.Errorf("a client from elsewhere: %v", err)
	}
}

// Files remain for the rest of the process, and no limit shuts the door.
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

// Who breaks off a handshake writes no log; what matters is logged.
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
