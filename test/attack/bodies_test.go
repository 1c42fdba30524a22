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
	// siege is how long attacks that consist of waiting last.
	siege = 3 * time.Second
)

// TestBodiesThatNeverEndHoldSeats: a service account without rights announces
// bodies and sends a byte of them, on many connections, to what everybody may
// ask. Seats are for requests that can be served.
func TestBodiesThatNeverEndHoldSeats(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.meanwhile(t, func(ctx context.Context) {
		group := crowd(ctx, 600, func() (net.Conn, error) {
			conn, err := c.secure(ctx, t, "http/1.1")
			if err == nil {
				_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", ownReviews, mallory.BearerToken)
			}
			return conn, err
		})
		besiege(ctx)
		group.leave(t)
	})
	c.remembers(t, before)
}

// TestStreamsThatNeverEndHoldSeats is the same over HTTP/2, where one
// connection carries hundreds of bodies.
func TestStreamsThatNeverEndHoldSeats(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.meanwhile(t, func(ctx context.Context) {
		group := crowd(ctx, 8, func() (net.Conn, error) {
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
		besiege(ctx)
		group.leave(t)
	})
	c.remembers(t, before)
}

// TestAnswersThatAreNeverRead: a client asks for the largest documents that
// everybody may read, and for small ones, and opens no window for the answers.
func TestAnswersThatAreNeverRead(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.meanwhile(t, func(ctx context.Context) {
		group := crowd(ctx, 8, func() (net.Conn, error) {
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
		besiege(ctx)
		group.leave(t)
	})
	c.remembers(t, before)
}

// TestBodyOfAForbiddenRequestIsNotRead: who may not do what he asks for is
// told so before he has sent what he announced.
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
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if _, err := conn.Read(answer); err != nil || string(answer) != "HTTP/1.1 403" {
		t.Errorf("%q %v", answer, err)
	}
}

// besiege waits as long as a siege lasts.
func besiege(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, siege)
	defer cancel()
	<-ctx.Done()
}

// secure opens a TLS connection.
func (c *cluster) secure(ctx context.Context, t *testing.T, protocol string) (net.Conn, error) {
	config := c.trust(t)
	config.NextProtos = []string{protocol}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", c.address())
}

// besiegers are connections that stay until they are told to leave.
type besiegers struct {
	mu     sync.Mutex // guards the following
	conns  []net.Conn
	failed int
}

// crowd opens connections, many at a time. Some may fail: the server defends
// itself.
func crowd(ctx context.Context, size int, open func() (net.Conn, error)) *besiegers {
	b := &besiegers{}
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

func (b *besiegers) leave(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.conns) == 0 {
		t.Error("no attacker got in: this tries nothing")
	}
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
}

// frames is an HTTP/2 connection whose frames the test writes itself.
type frames struct {
	net.Conn
	*http2.Framer
	encoder *hpack.Encoder
	block   *strings.Builder
}

// frames opens an HTTP/2 connection. What the server sends is read and
// dropped, until the connection ends.
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

// request begins a request, or makes a whole one.
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
