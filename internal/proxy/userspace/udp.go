package userspace

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const (
	// flowTimeout is how long a flow is known in which neither side sends.
	flowTimeout = time.Minute
	// longestDatagram is in bytes.
	longestDatagram = 64 << 10
	// controlSize has room for struct in_pktinfo or in6_pktinfo with its header, in bytes.
	controlSize = 64
)

// datagrams is what a listener does with UDP. Each client has a flow, a socket that is
// connected to its endpoint:
//
//	client ──► socket that listens ──► flow of the client ──► endpoint
//	client ◄── the same, from the address to which the client sent ◄── endpoint
type datagrams struct {
	*listener
	socket *net.UDPConn

	mu    sync.Mutex // guards the following
	flows map[netip.AddrPort]*flow
}

// listenUDP opens the socket and returns what serves it.
func (l *listener) listenUDP() (serve func(), err error) {
	socket, err := net.ListenUDP(l.network("udp"), nil)
	if err != nil {
		return nil, err
	}
	if err := l.tellDestinations(socket); err != nil {
		_ = socket.Close()
		return nil, err
	}
	l.closeSocket = socket.Close
	l.port = socket.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	d := &datagrams{listener: l, socket: socket, flows: map[netip.AddrPort]*flow{}}
	return d.receiveAll, nil
}

// tellDestinations makes the kernel tell to which of the node's addresses a datagram was
// sent.
func (l *listener) tellDestinations(socket *net.UDPConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		if l.family == v1.IPv6Protocol {
			failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else {
			failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	return errors.Join(err, failure)
}

// receiveAll passes datagrams of clients on until the listener is closed. One that cannot
// be passed on is lost.
func (d *datagrams) receiveAll() {
	buffer, control := make([]byte, longestDatagram), make([]byte, controlSize)
	for {
		n, size, _, client, err := d.socket.ReadMsgUDPAddrPort(buffer, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as an ICMP error about an answer
			continue
		}
		f := d.flowOf(client, control[:size])
		if f == nil {
			continue
		}
		f.extend()
		if _, err := f.socket.Write(buffer[:n]); err != nil {
			klog.FromContext(d.ctx).V(4).Info("A datagram is lost", "service", d.label, "err", err)
		}
	}
}

// flowOf returns the flow of a client. It makes one, unless there is no endpoint: then it
// returns nil.
func (d *datagrams) flowOf(client netip.AddrPort, control []byte) *flow {
	d.mu.Lock()
	f := d.flows[client]
	d.mu.Unlock()
	if f != nil {
		return f
	}
	to, endpoint, err := d.dial(d.ctx, d.network("udp"), addressOf(client))
	if err != nil {
		return nil
	}
	f = &flow{socket: to.(*net.UDPConn)}
	f.forget = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.flows[client] == f { // and not a later one
			delete(d.flows, client)
		}
	}
	s := d.admit(f, addressOf(client))
	if s == nil {
		_ = to.Close()
		return nil
	}
	if !d.use(f, endpoint) {
		_ = to.Close()
		d.leave(s)
		return nil
	}
	d.mu.Lock()
	d.flows[client] = f
	d.mu.Unlock()
	answer := answerControl(control)
	f.extend()
	d.run(func() {
		defer d.leave(s)
		defer f.abort()
		f.answerAll(func(data []byte) { _, _, _ = d.socket.WriteMsgUDPAddrPort(data, answer, client) })
	})
	return f
}

// answerControl returns the control message of answers to a datagram: they come from the
// address to which it was sent.
func answerControl(control []byte) []byte {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range list {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[8:])}) // ipi_addr
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data)}) // ipi6_addr
		}
	}
	return nil
}

// flow is the connection of a client to its endpoint.
type flow struct {
	socket *net.UDPConn
	// forget makes the next datagram of the client begin another flow.
	forget func()
}

// extend lets the flow live on.
func (f *flow) extend() { _ = f.socket.SetReadDeadline(time.Now().Add(flowTimeout)) }

// abort implements connection.
func (f *flow) abort() {
	f.forget()
	_ = f.socket.Close()
}

// answerAll passes the endpoint's datagrams on until nothing has been sent for a while,
// the flow is aborted, or the endpoint refuses. While it waits, it holds no buffer: there
// are many flows.
func (f *flow) answerAll(send func([]byte)) {
	raw, err := f.socket.SyscallConn()
	for err == nil {
		var failure error
		err = raw.Read(func(fd uintptr) bool {
			failure = receive(int(fd), send)
			return !errors.Is(failure, unix.EAGAIN)
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), failure != nil:
			return
		case err == nil:
			f.extend()
		}
	}
}

// receive receives one datagram, without waiting for it.
func receive(fd int, send func([]byte)) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	n, err := syscall.Read(fd, *buffer)
	if err == nil {
		send((*buffer)[:n])
	}
	return err
}

// buffers are for datagrams of endpoints.
var buffers = sync.Pool{New: func() any { return new(make([]byte, longestDatagram)) }}
