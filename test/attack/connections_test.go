package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTenThousandIdleConnections opens connections without credentials and
// sends nothing: on some no TLS handshake, on some nothing after it.
func TestTenThousandIdleConnections(t *testing.T) {
	c := controlPlane(t)
	before := c.memory(t)
	holds, err := held(c)
	if err != nil {
		t.Fatal(err)
	}
	c.checkLatencyDuring(t, func(ctx context.Context) {
		var opened atomic.Int64
		group := openMany(ctx, 10_000, func() (net.Conn, error) {
			if opened.Add(1)%10 == 0 {
				return c.secure(ctx, t, "h2")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", c.address())
		})
		if now, err := held(c); err != nil || now > holds+200<<20 {
			t.Errorf("10,000 idle connections take %d MB, %v", (now-holds)>>20, err)
		}
		// A client with credentials can still connect.
		if _, err := c.client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
			t.Errorf("a new client with credentials: %v", err)
		}
		group.close(t)
	})
	c.recordMemory(t, before)
}

// TestSlowHeaders sends endless headers slowly (Slowloris), over HTTP/1.1 and
// HTTP/2.
func TestSlowHeaders(t *testing.T) {
	c := controlPlane(t)
	before := c.memory(t)
	c.checkLatencyDuring(t, func(ctx context.Context) {
		group := openMany(ctx, 500, func() (net.Conn, error) {
			conn, err := c.secure(ctx, t, "http/1.1")
			if err == nil {
				_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "))
			}
			return conn, err
		})
		streams := openMany(ctx, 100, func() (net.Conn, error) {
			f, err := c.frames(ctx, t)
			if err != nil {
				return nil, err
			}
			return f.Conn, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		})
		waitForAttack(ctx)
		if _, err := group.conns[0].Read(make([]byte, 1)); err == nil {
			t.Error("a request with endless headers was answered")
		}
		group.close(t)
		streams.close(t)
	})
	c.recordMemory(t, before)
}

// TestRapidReset resets HTTP/2 requests immediately after they are sent
// (CVE-2023-44487), with and without credentials.
func TestRapidReset(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.checkLatencyDuring(t, func(ctx context.Context) {
		group := openMany(ctx, 4, func() (net.Conn, error) {
			f, err := c.frames(ctx, t)
			if err != nil {
				return nil, err
			}
			for i := range uint32(5000) {
				if err := f.request(2*i+1, true, http.MethodGet, "/api/v1/namespaces", mallory); err != nil {
					return f.Conn, err
				}
				if err := f.WriteRSTStream(2*i+1, http2.ErrCodeCancel); err != nil {
					return f.Conn, err
				}
			}
			return f.Conn, nil
		})
		group.close(t)
	})
	c.recordMemory(t, before)
}

// TestFloodsOfControlFrames sends settings and pings without reading the
// responses, and endless headers (CONTINUATION flood).
func TestFloodsOfControlFrames(t *testing.T) {
	c := controlPlane(t)
	before := c.memory(t)
	c.checkLatencyDuring(t, func(ctx context.Context) {
		group := openMany(ctx, 2, func() (net.Conn, error) {
			f, err := c.frames(ctx, t)
			if err != nil {
				return nil, err
			}
			for range 20_000 {
				if err := errors.Join(f.WriteSettings(), f.WritePing(false, [8]byte{})); err != nil {
					return f.Conn, err
				}
			}
			f.block.Reset()
			if err := f.encoder.WriteField(hpack.HeaderField{Name: "x-fill", Value: strings.Repeat("x", 4000)}); err != nil {
				return f.Conn, err
			}
			fragment := bytes.Clone([]byte(f.block.String()))
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fragment}); err != nil {
				return f.Conn, err
			}
			for range 5000 {
				if err := f.WriteContinuation(1, false, fragment); err != nil {
					return f.Conn, err
				}
			}
			return f.Conn, errors.New("headers of 20 MB were accepted")
		})
		group.close(t)
	})
	c.recordMemory(t, before)
}

// TestLongPathsAndHeaders checks that long paths, queries and headers are
// refused or get a short response.
func TestLongPathsAndHeaders(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	long := strings.Repeat("x", 500<<10)
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		for range 5 {
			for _, path := range []string{
				"/" + long, "/api/v1/namespaces/" + long + "/pods", "/version?" + strings.Repeat("a&", 200<<10),
				"/api/v1/namespaces/default/pods?labelSelector=a+in+(" + strings.Repeat("x,", 200<<10) + "x)",
				"/api/v1/namespaces/default/pods?continue=" + long, "/api/v1/namespaces/default/pods?fieldSelector=" + strings.Repeat("a%3Db,", 60<<10),
			} {
				if code, body := send(t, mallory, http.MethodGet, path, ""); len(body) > 4*len(path) {
					t.Errorf("GET %.60s…: %d with %d bytes", path, code, len(body))
				}
			}
			if code, _ := send(t, mallory, http.MethodGet, "/version", "", "User-Agent", long); code != http.StatusOK {
				t.Errorf("a user agent of 500 KiB: %d", code)
			}
		}
		if code := tooLong(c, t); code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("headers of 2 MiB: %d", code)
		}
	})
	c.recordMemory(t, before)
}

// tooLong sends headers of 2 MiB and returns the status code.
func tooLong(c *cluster, t *testing.T) (code int) {
	conn, err := c.secure(context.Background(), t, "http/1.1")
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = conn.Write([]byte("GET /version HTTP/1.1\r\nHost: x\r\nX-Fill: " + strings.Repeat("x", 2<<20) + "\r\n\r\n"))
	}()
	if _, err := fmt.Fscanf(conn, "HTTP/1.1 %d", &code); err != nil {
		t.Error(err)
	}
	return code
}
