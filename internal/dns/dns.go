// Package dns is the cluster's DNS server. It answers for the cluster domain
// out of informers, and asks the host's resolvers for everything else.
//
//	pod ─► 10.96.0.10:53 ─proxy─► NODE:port ─┬─ cluster.local, in-addr.arpa ─► Zone ◄─ Services, EndpointSlices
//	                                          └─ the rest ─► forwarder ─► host's resolvers
//
// The server runs in the host's network on a port of its own; the Service
// kube-system/kube-dns and its EndpointSlice, which announce.go keeps, lead
// from the well-known address to it on every node.
package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/miekg/dns"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Config of a server.
type Config struct {
	Client *client.Client
	// Domain is the cluster's, such as cluster.local.
	Domain string
	// Addresses are those of this host to listen on.
	Addresses []string
	Port      int
	// Pods are the addresses of pods. Queries from others than pods, this host
	// and the cluster's other DNS servers are refused; none answers everybody.
	Pods []netip.Prefix
	// ResolvConf names the host's resolvers; "" is /etc/resolv.conf.
	ResolvConf string
	// Announce publishes this server as the Service kube-system/kube-dns with
	// these cluster IPs; none leaves that to others.
	Announce []string
	// NodeName names this instance's endpoints.
	NodeName string
}

const (
	ttl = 5 // seconds, short because endpoints come and go
	// largestDatagram bounds answers by UDP whatever the client would take, so
	// that a forged query cannot be used to send much to somebody else.
	largestDatagram = 1232
	// streamsAtOnce bounds the TCP connections, streamsOfOne those of one client.
	streamsAtOnce = 1024
	streamsOfOne  = 64
)

// Server answers queries.
type Server struct {
	config  Config
	view    *informerView
	zone    *Zone
	clients *clients
	forward *forwarder
}

// New makes a server for the component that ctx belongs to; Run does the work.
func New(ctx context.Context, c Config) (*Server, error) {
	if len(c.Addresses) == 0 || c.Port == 0 {
		return nil, errors.New("the DNS server needs an address and a port to listen on")
	}
	if c.ResolvConf == "" {
		c.ResolvConf = "/etc/resolv.conf"
	}
	view, err := newInformerView(ctx, c.Client.Informers)
	if err != nil {
		return nil, err
	}
	return &Server{
		config: c, view: view,
		clients: newClients(c.Pods, view.isServer),
		zone:    &Zone{Domain: dns.Fqdn(c.Domain), TTL: ttl, View: view},
		forward: newForwarder(c.ResolvConf, append(c.Addresses, c.Announce...)),
	}, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error { return supervise.Run(ctx, s.run) }

func (s *Server) run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), s.view.synced...) {
		return nil
	}
	streamQuota := newQuota(streamsAtOnce, streamsOfOne)
	g, ctx := supervise.Together(ctx)
	for _, address := range s.config.Addresses {
		at := net.JoinHostPort(address, strconv.Itoa(s.config.Port))
		packets, err := net.ListenPacket("udp", at)
		if err != nil {
			return fmt.Errorf("listen for DNS on %s: %w", at, err)
		}
		streams, err := net.Listen("tcp", at)
		if err != nil {
			return errors.Join(fmt.Errorf("listen for DNS on %s: %w", at, err), packets.Close())
		}
		for _, server := range []*dns.Server{{PacketConn: packets}, {Listener: listener{streams, s.clients, streamQuota}}} {
			server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { s.answer(ctx, w, q) })
			g.Go(func() error { return listen(ctx, server) })
		}
	}
	if len(s.config.Announce) > 0 {
		g.Go(func() error { return s.announce(ctx) })
	}
	return g.Wait()
}

// listen serves until ctx ends and the server has shut down.
func listen(ctx context.Context, server *dns.Server) error {
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	done := make(chan error, 1)
	supervise.Go(ctx, func() { done <- supervise.Call(server.ActivateAndServe) })
	select {
	case err := <-done:
		return err
	case <-started:
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.Join(server.Shutdown(), <-done)
	}
}

// answer serves one query. One that makes the server panic fails, and no other.
func (s *Server) answer(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) {
	err := supervise.Call(func() error { s.serve(ctx, w, query); return nil })
	if err != nil {
		supervise.Note(ctx, err)
		_ = w.WriteMsg(new(dns.Msg).SetRcode(query, dns.RcodeServerFailure))
	}
}

func (s *Server) serve(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) {
	reply := new(dns.Msg).SetReply(query)
	reply.RecursionAvailable = true
	client := clientAt(w.RemoteAddr())
	switch {
	case !s.clients.allowed(w.RemoteAddr()):
		reply.Rcode = dns.RcodeRefused
	case query.Opcode != dns.OpcodeQuery:
		reply.Rcode = dns.RcodeNotImplemented
	case len(query.Question) != 1:
		reply.Rcode = dns.RcodeFormatError
	case !s.zone.Answer(reply, query.Question[0]):
		reply = s.forward.ask(ctx, client, query)
	default:
		s.follow(ctx, client, query, reply)
	}
	size := dns.MinMsgSize
	if opt := query.IsEdns0(); opt != nil {
		size = min(max(size, int(opt.UDPSize())), largestDatagram)
		if reply.IsEdns0() == nil {
			reply.SetEdns0(largestDatagram, false)
		}
	}
	if _, isTCP := w.RemoteAddr().(*net.TCPAddr); isTCP {
		size = dns.MaxMsgSize
	}
	reply.Truncate(size)
	if err := w.WriteMsg(reply); err != nil {
		klog.FromContext(ctx).V(3).Info("Answer not sent", "client", w.RemoteAddr().String(), "err", err)
	}
}

// follow adds the addresses behind the alias of an ExternalName Service.
func (s *Server) follow(ctx context.Context, client netip.Addr, query, reply *dns.Msg) {
	const deepest = 8
	question := query.Question[0]
	if question.Qtype != dns.TypeA && question.Qtype != dns.TypeAAAA {
		return
	}
	for range deepest {
		if len(reply.Answer) == 0 {
			return
		}
		alias, ok := reply.Answer[len(reply.Answer)-1].(*dns.CNAME)
		if !ok {
			return
		}
		next := new(dns.Msg).SetQuestion(alias.Target, question.Qtype)
		answer := new(dns.Msg).SetReply(next)
		if !s.zone.Answer(answer, next.Question[0]) {
			answer = s.forward.ask(ctx, client, next)
		}
		reply.Answer = append(reply.Answer, answer.Answer...)
		if len(answer.Answer) == 0 {
			return
		}
	}
}
