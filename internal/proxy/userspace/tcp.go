package userspace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// acceptPause is the wait after a connection could not be accepted, for example for want
// of a file descriptor.
const acceptPause = 100 * time.Millisecond

// listenTCP opens the socket and returns what serves it.
func (l *listener) listenTCP() (serve func(), err error) {
	socket, err := (&net.ListenConfig{}).Listen(l.ctx, l.network("tcp"), ":0")
	if err != nil {
		return nil, err
	}
	l.closeSocket = socket.Close
	l.port = socket.Addr().(*net.TCPAddr).AddrPort().Port()
	return func() { l.acceptAll(socket) }, nil
}

// acceptAll accepts connections until the listener is closed.
func (l *listener) acceptAll(socket net.Listener) {
	for {
		c, err := socket.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return
		default:
			klog.FromContext(l.ctx).Error(err, "A connection cannot be accepted", "service", l.label)
			supervise.Pause(l.ctx, acceptPause)
			continue
		}
		ctx, cancel := context.WithCancel(l.ctx)
		p := &pair{client: c.(*net.TCPConn), cancel: cancel}
		client := clientOf(p.client)
		s := l.admit(p, client)
		if s == nil {
			p.abort()
			continue
		}
		l.run(func() {
			defer l.leave(s)
			defer p.abort() // nothing, if both sides have ended
			l.forward(ctx, p, client)
		})
	}
}

// forward connects a client to an endpoint, and ends when both sides have ended.
func (l *listener) forward(ctx context.Context, p *pair, client netip.Addr) {
	to, endpoint, err := l.dial(ctx, l.network("tcp"), client)
	if err != nil {
		klog.FromContext(l.ctx).V(2).Info("No endpoint answers", "service", l.label, "err", err)
		return
	}
	if p.join(to.(*net.TCPConn)) && l.use(p, endpoint) {
		p.copy(l.ctx)
	}
}

// pair is a connection of a client, with the one to its endpoint.
type pair struct {
	client *net.TCPConn
	cancel context.CancelFunc // ends the attempt to connect to an endpoint

	mu       sync.Mutex // guards the following
	endpoint *net.TCPConn
	aborted  bool
}

// join adds the connection to the endpoint, which abort then ends, too. It reports false
// if the pair has ended.
func (p *pair) join(endpoint *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoint = endpoint
	return !p.aborted
}

// abort implements connection: both sides get a reset.
func (p *pair) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborted = true
	p.cancel()
	for _, c := range []*net.TCPConn{p.client, p.endpoint} {
		if c != nil {
			_, _ = c.SetLinger(0), c.Close()
		}
	}
}

// copy copies in both directions until both sides have ended. If one side ends, the other
// one may still send. The kernel moves the bytes, without a buffer of this process.
func (p *pair) copy(ctx context.Context) {
	var both supervise.WaitGroup
	direction := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
			p.abort()
		}
	}
	both.Go(ctx, func() { direction(p.endpoint, p.client) })
	both.Go(ctx, func() { direction(p.client, p.endpoint) })
	both.Wait()
	_, _ = p.client.Close(), p.endpoint.Close()
}

// clientOf returns the address of the client of a connection.
func clientOf(c *net.TCPConn) netip.Addr {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return addressOf(at.AddrPort())
}

// addressOf returns the address of a client without its port.
func addressOf(client netip.AddrPort) netip.Addr { return client.Addr().Unmap() }
