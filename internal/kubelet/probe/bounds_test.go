package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilexec "k8s.io/utils/exec"
)

// counted counts the bytes that are read from a connection.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// counting returns a Runner, and what it has read from its connections.
func counting() (*Runner, *atomic.Int64) {
	read := &atomic.Int64{}
	return &Runner{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return counted{conn, read}, err
	}}, read
}

// maxRead is how much is read of an answer, whatever its length: twice the
// headers, and what buffers hold.
const maxRead = 512 << 10

// grpcServer answers that it is healthy, with a header and a message of the given
// lengths.
func grpcServer(t *testing.T, header, message int) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("X-Long", strings.Repeat("x", header))
		body := []byte{0x08, 0x01} // status: SERVING
		for len(body) < message {
			body = append(body, 0x7a, 0x7f) // field 15, 127 bytes
			body = append(body, make([]byte, 127)...)
		}
		n := len(body)
		_, _ = w.Write(append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...))
		w.Header().Set("Grpc-Status", "0")
	}))
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func TestGRPCAnswersAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		header, message int
		ok              bool
	}{
		"short":        {100, 0, true},
		"long headers": {11 << 20, 0, false},
		"long message": {100, 3 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := grpcServer(t, test.header, test.message)
			r, read := counting()
			probe := &v1.Probe{TimeoutSeconds: 60, ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(portOf(t, server))}}}
			ok, output, err := r.Run(t.Context(), probe, Target{IP: "127.0.0.1", Container: &v1.Container{}})
			if ok != test.ok || err != nil || len(output) > maxBody {
				t.Errorf("%v %v, %.200s", ok, err, output)
			}
			if n := read.Load(); n > maxRead {
				t.Errorf("%d bytes are read, want at most %d", n, maxRead)
			}
		})
	}
}

// endless is a server whose answers have no end: its headers or its body.
func endless(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n")
		if r.URL.Path == "/body" {
			_, err = fmt.Fprint(conn, "Connection: close\r\n\r\n")
		}
		for line := append(bytes.Repeat([]byte("x"), 100), ": y\r\n"...); err == nil; {
			_, err = conn.Write(line)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestHTTPAnswersAreBounded(t *testing.T) {
	server := endless(t)
	for path, fine := range map[string]bool{"/headers": false, "/body": true} {
		action, target := &v1.HTTPGetAction{Path: path, Port: intstr.FromInt(portOf(t, server))}, Target{IP: "127.0.0.1", Container: &v1.Container{}}
		r, read := counting()
		ok, output, err := r.Run(t.Context(), &v1.Probe{TimeoutSeconds: 60, ProbeHandler: v1.ProbeHandler{HTTPGet: action}}, target)
		if ok != fine || err != nil || len(output) > maxBody {
			t.Errorf("%s: a probe has %v %v, %d bytes", path, ok, err, len(output))
		}
		if _, err := r.Hook(t.Context(), action, target); (err == nil) != fine {
			t.Errorf("%s: a hook has %v", path, err)
		}
		if n := read.Load(); n > maxRead {
			t.Errorf("%s: %d bytes are read, want at most %d", path, n, maxRead)
		}
	}
}

// What a command writes is shortened, also in the error of its exit code.
func TestOutputsAreBounded(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 1<<20)
	for name, failure := range map[string]error{
		"success": nil, "failure": utilexec.CodeExitError{Err: fmt.Errorf("command exited with 3: %s", long), Code: 3},
	} {
		r := &Runner{Exec: func(context.Context, string, []string, time.Duration) ([]byte, error) { return long, failure }}
		output, err := r.Command(t.Context(), []string{"run"}, Target{Pod: &v1.Pod{}}, 0)
		var exit utilexec.ExitError
		if len(output) != maxBody || (err == nil) != (failure == nil) || err != nil && (len(err.Error()) > maxBody || !errors.As(err, &exit) || exit.ExitStatus() != 3) {
			t.Errorf("%s: %d bytes, %.100v", name, len(output), err)
		}
	}
}

// A pod's probes run a few at a time, and do not keep those of others waiting.
func TestProbesOfAPodTakeTurns(t *testing.T) {
	connecting := &v1.Container{Name: "main", ReadinessProbe: &v1.Probe{PeriodSeconds: 10, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}}
	for name, test := range map[string]struct {
		container *v1.Container
		most      int32
	}{"commands": {readiness(0, 10), maxCommands}, "connections": {connecting, maxRunning}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				release := make(chan struct{})
				wait := func() {
					runs.Add(1)
					<-release
				}
				m := start(t, func(_ context.Context, id string, _ []string, _ time.Duration) ([]byte, error) {
					if id != "other" {
						wait()
					}
					return nil, nil
				})
				m.runner.Dial = func(context.Context, string, string) (net.Conn, error) {
					wait()
					conn, _ := net.Pipe()
					return conn, nil
				}
				many, other := &v1.Pod{}, &v1.Pod{}
				many.UID, other.UID = "many", "other"
				var running []Instance
				for i := range 100 {
					running = append(running, Instance{test.container, fmt.Sprint(i), time.Now()})
				}
				m.Sync(many, "192.0.2.1", running, never)
				m.Sync(other, "192.0.2.2", []Instance{{readiness(0, 10), "other", time.Now()}}, never)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := runs.Load(); n != test.most {
					t.Errorf("%d probes of a pod run at a time, want %d", n, test.most)
				}
				if n := m.Counts()[Count{UID: "other", Container: "main", Probe: "Readiness", Result: "successful"}]; n != 1 {
					t.Errorf("the other pod's probe succeeded %d times", n)
				}
				close(release)
				synctest.Wait()
				if n := runs.Load(); n != 100 {
					t.Errorf("%d probes of 100 have run in the end", n)
				}
				m.Forget(types.UID("many"))
			})
		})
	}
}

// Commands of probes and of hooks take turns in a pod. Those of pods whose output was once
// too long run one at a time in a namespace, until the pod is forgotten. Probes do not wait
// for hooks, which may wait for them.
func TestCommandsTakeTurns(t *testing.T) {
	for name, test := range map[string]struct {
		timeout, ofOthers time.Duration
		most              int32
	}{"probes": {time.Hour, 0, maxCommands}, "hooks": {0, time.Hour, maxHooks}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { takeTurns(t, test.timeout, test.ofOthers, test.most) })
		})
	}
}

// takeTurns runs commands with a timeout, of which most of a pod may run at a time, whatever
// those with another timeout do.
func takeTurns(t *testing.T, timeout, ofOthers time.Duration, most int32) {
	var running atomic.Int32
	long := false
	r := &Runner{Exec: func(ctx context.Context, _ string, _ []string, of time.Duration) ([]byte, error) {
		if long {
			return nil, fmt.Errorf("the command wrote more: %w", status.Error(codes.ResourceExhausted, "message"))
		}
		if of == timeout {
			running.Add(1)
			defer running.Add(-1)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	pod := func(namespace, uid string) *v1.Pod {
		p := &v1.Pod{}
		p.Namespace, p.UID = namespace, types.UID(uid)
		return p
	}
	pods := []*v1.Pod{pod("web", "a"), pod("web", "b"), pod("other", "c")}
	run := func(ctx context.Context, timeout time.Duration) {
		for _, p := range pods {
			for range maxCommands + maxHooks {
				go func() { _, _ = r.Command(ctx, []string{"run"}, Target{Pod: p}, timeout) }()
			}
		}
		synctest.Wait()
	}
	expect := func(want int32, when string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		run(ctx, ofOthers)
		run(ctx, timeout)
		if got := running.Load(); got != want {
			t.Errorf("%s, %d commands run at a time, want %d", when, got, want)
		}
		cancel()
		synctest.Wait()
		if got := running.Load(); got != 0 {
			t.Errorf("%s, %d commands run at the end", when, got)
		}
	}
	expect(3*most, "at first")

	long = true
	for _, p := range pods {
		if _, err := r.Command(t.Context(), []string{"run"}, Target{Pod: p}, timeout); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a long output is %v", err)
		}
	}
	long = false
	expect(2, "in two namespaces of pods with long outputs")
	r.turns.forget("a")
	expect(most+2, "with a new pod")
	r.turns.forget("b")
	r.turns.forget("c")
	if r.turns.gates.Len()+len(r.turns.verbose) > 0 {
		t.Errorf("%d gates and %d pods are kept", r.turns.gates.Len(), len(r.turns.verbose))
	}
}
