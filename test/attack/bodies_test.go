package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"
)

const (
	ownReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	// attackDuration is how long attacks that consist of waiting last.
	attackDuration = 3 * time.Second
)

// TestEndlessBodiesHoldSeats has a service account without rights announce
// bodies, on many connections, and send a byte of each. They must not occupy
// the seats of requests that can be served.
func TestEndlessBodiesHoldSeats(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.checkLatencyDuring(t, func(ctx context.Context) {
		group := openMany(ctx, 600, func() (net.Conn, error) {
			conn, err := c.secure(ctx, t, "http/1.1")
			if err == nil {
				_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", ownReviews, mallory.BearerToken)
			}
			return conn, err
		})
		waitForAttack(ctx)
		group.close(t)
	})
	c.recordMemory(t, before)
}

// TestEndlessStreamsHoldSeats does the same over HTTP/2, where one connection
// carries hundreds of bodies.
func TestEndlessStreamsHoldSeats(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.checkLatencyDuring(t, func(ctx context.Context) {
		group := openMany(ctx, 8, func() (net.Conn, error) {
			s, err := c.frames(ctx, t)
			if err != nil {
				return nil, err
			}
			for i := range uint32(200) {
				if err := s.request(2*i+1, false, http.MethodPost, ownReviews, mallory); err != nil {
					return s.Conn, err
				}
				if err := s.WriteData(2*i+1, false, []byte("{")); err != nil {
					return s.Conn, err
				}
			}
			return s.Conn, nil
		})
		waitForAttack(ctx)
		group.close(t)
	})
	c.recordMemory(t, before)
}

// TestResponsesThatAreNeverRead requests the largest public documents, and
// small ones, and opens no flow-control window for the responses.
func TestResponsesThatAreNeverRead(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.checkLatencyDuring(t, func(ctx context.Context) {
		group := openMany(ctx, 8, func() (net.Conn, error) {
			s, err := c.frames(ctx, t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			if err != nil {
				return nil, err
			}
			for i := range uint32(200) {
				path := "/version"
				if i%2 == 0 {
					path = "/openapi/v2"
				}
				if err := s.request(2*i+1, true, http.MethodGet, path, mallory); err != nil {
					return s.Conn, err
				}
			}
			return s.Conn, nil
		})
		waitForAttack(ctx)
		group.close(t)
	})
	c.recordMemory(t, before)
}

// TestBodyOfAForbiddenRequestIsNotRead checks that a client without permission
// gets the error before it has sent the announced body.
func TestBodyOfAForbiddenRequestIsNotRead(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	conn, err := c.secure(t.Context(), t, "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST /api/v1/namespaces/kube-system/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 300000\r\n\r\n{", mallory.BearerToken); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if _, err := conn.Read(answer); err != nil || string(answer) != "HTTP/1.1 403" {
		t.Errorf("%q %v", answer, err)
	}
}

// waitForAttack waits for the duration of an attack.
func waitForAttack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, attackDuration)
	defer cancel()
	<-ctx.Done()
}

// secure opens a TLS connection.
func (c *cluster) secure(ctx context.Context, t *testing.T, protocol string) (net.Conn, error) {
	config := c.trust(t)
	config.NextProtos = []string{protocol}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", c.address())
}

// openConns are connections that stay open until close is called.
type openConns struct {
	mu     sync.Mutex // guards the following fields
	conns  []net.Conn
	failed int
}

// openMany opens many connections concurrently. Some may fail, because the
// server limits them.
func openMany(ctx context.Context, size int, open func() (net.Conn, error)) *openConns {
	b := &openConns{}
	var all sync.WaitGroup
	places := make(chan struct{}, 32)
	for range size {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return b
		}
		all.Go(func() {
			defer func() { <-places }()
			conn, err := open()
			b.mu.Lock()
			defer b.mu.Unlock()
			if conn != nil {
				b.conns = append(b.conns, conn)
			}
			if err != nil {
				b.failed++
			}
		})
	}
	all.Wait()
	return b
}

func (b *openConns) close(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.conns) == 0 {
		t.Error("no connection was opened, so the test proves nothing")
	}
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
}

// frames is an HTTP/2 connection on which the test writes raw frames.
type frames struct {
	net.Conn
	*http2.Framer
	encoder *hpack.Encoder
	block   *strings.Builder
}

// frames opens an HTTP/2 connection. It reads and discards what the server
// sends.
func (c *cluster) frames(ctx context.Context, t *testing.T, settings ...http2.Setting) (*frames, error) {
	conn, err := c.secure(ctx, t, "h2")
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	block := &strings.Builder{}
	f := &frames{Conn: conn, Framer: http2.NewFramer(conn, conn), encoder: hpack.NewEncoder(block), block: block}
	if err := f.WriteSettings(settings...); err != nil {
		return nil, err
	}
	reader := http2.NewFramer(nil, conn)
	go func() {
		for {
			if _, err := reader.ReadFrame(); err != nil {
				return
			}
		}
	}()
	return f, nil
}

// request sends the headers of a request, and ends the stream if whole is set.
func (f *frames) request(stream uint32, whole bool, method, path string, who *rest.Config, more ...hpack.HeaderField) error {
	f.block.Reset()
	fields := append([]hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: path},
	}, more...)
	if who != nil {
		fields = append(fields, hpack.HeaderField{Name: "authorization", Value: "Bearer " + who.BearerToken})
	}
	for _, field := range fields {
		if err := f.encoder.WriteField(field); err != nil {
			return err
		}
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(f.block.String()), EndHeaders: true, EndStream: whole})
}
