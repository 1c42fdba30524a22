// Package dns is the cluster's DNS server. It answers queries for the cluster
// domain from informers and forwards all others to the host's resolvers, or to
// those that the ConfigMap kube-system/kube-dns names.
//
//	pod ─► 10.96.0.10:53 ─proxy─► NODE:port ─┬─ cluster.local, in-addr.arpa ─► Zone ◄─ Services, EndpointSlices
//	                                          └─ the rest ─► forwarder ◄─ ConfigMap kube-dns, resolv.conf
//	                                                             └─► resolvers
//
// The server listens on the host's network. The Service kube-system/kube-dns and
// its EndpointSlices, which announce.go keeps, route the cluster IP to it on
// every node. The names follow the specification "Kubernetes DNS-Based Service
// Discovery".
package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	registry "github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Config configures a Server.
type Config struct {
	Client *client.Client
	// Domain is the cluster's, such as cluster.local.
	Domain string
	// Addresses are this host's IP addresses to listen on.
	Addresses []string
	Port      int
	// Pods are the address ranges of pods. The server answers pods, this host, the
	// cluster's other DNS servers and Nodes, and refuses all others. If Pods is empty,
	// it answers every client.
	Pods []netip.Prefix
	// Nodes reports whether an address is that of a node, from which the queries of
	// its pods come if it translates their addresses. The default is none.
	Nodes func(netip.Addr) bool
	// ResolvConf is the path of the file that names the host's resolvers. The
	// default is /etc/resolv.conf.
	ResolvConf string
	// Announce are the cluster IPs of the Service kube-system/kube-dns, which the
	// server publishes itself with. If it is empty, the server publishes nothing.
	Announce []string
	// Unannounced are further addresses to listen on, for Machine of other servers.
	Unannounced []string
	// Machine is the address and port of the DNS server of the machine that this
	// host is a part of. It is asked in place of resolvers at loopback, which are
	// the machine's. Queries of the machine's pods come from its address. The
	// default is none.
	Machine string
	// NodeName is part of the name of this server's EndpointSlice.
	NodeName string
	// MetricsPort is the port of /metrics on Addresses, for the clients whose queries
	// are answered. 0 is none.
	MetricsPort int
	// Metrics are served at MetricsPort. The default is a new registry.
	Metrics *registry.Registry
}

const (
	ttl = 5 // seconds, short because endpoints come and go
	// maxDatagram bounds answers by UDP, in bytes, even if the client accepts
	// more: a query with a forged address must not send much to its victim.
	maxDatagram = 1232
	// maxStreams bounds the TCP connections of all clients.
	maxStreams          = 1024
	maxStreamsPerClient = 64
)

// Server answers DNS queries.
type Server struct {
	config  Config
	view    *informerView
	zone    *Zone
	clients *clients
	forward *forwarder
	turns   *turns
	counts  *counts
}

// New returns a server that does not listen yet. Its informers belong to the
// component of ctx.
func New(ctx context.Context, c Config) (*Server, error) {
	if len(c.Addresses) == 0 || c.Port == 0 {
		return nil, errors.New("the DNS server needs an address and a port to listen on")
	}
	if c.ResolvConf == "" {
		c.ResolvConf = "/etc/resolv.conf"
	}
	if c.Metrics == nil {
		c.Metrics = registry.NewRegistry(nil)
	}
	view, err := newInformerView(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	forward := newForwarder(c.ResolvConf, c.Machine, c.servers())
	forward.counts = newCounts(c.Metrics, c.Port, forward.cache.entries.Len)
	return &Server{
		config: c, view: view, counts: forward.counts,
		clients: newClients(c.Pods, func(a netip.Addr) bool { return view.isServer(a) || c.isMachine(a) || c.Nodes != nil && c.Nodes(a) }),
		zone:    &Zone{Domain: dns.CanonicalName(c.Domain), TTL: ttl, View: view},
		forward: forward, turns: newTurns(),
	}, nil
}

// isMachine reports whether a is the address in c.Machine.
func (c Config) isMachine(a netip.Addr) bool {
	at, err := netip.ParseAddrPort(c.Machine)
	return err == nil && at.Addr() == a
}

// servers returns the addresses and ports at which the cluster's DNS is reached.
func (c Config) servers() []string {
	var out []string
	for _, address := range slices.Concat(c.Addresses, c.Unannounced) {
		out = append(out, net.JoinHostPort(address, strconv.Itoa(c.Port)))
	}
	for _, address := range c.Announce {
		out = append(out, net.JoinHostPort(address, "53"))
	}
	return out
}

// Run listens and serves until ctx ends. It returns an error if it cannot listen
// on all addresses.
func (s *Server) Run(ctx context.Context) error { return supervise.Run(ctx, s.run) }

func (s *Server) run(ctx context.Context) error {
	if !s.view.run(ctx) {
		return nil
	}
	if err := s.followSettings(ctx); err != nil {
		return err
	}
	scrapes, err := s.listenForMetrics()
	if err != nil {
		return err
	}
	listeners, err := s.listen()
	if err != nil {
		for _, l := range scrapes {
			err = errors.Join(err, l.Close())
		}
		return err
	}
	g, ctx := supervise.WithContext(ctx)
	for _, server := range listeners {
		server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { s.answer(ctx, w, q) })
		g.Go(func() error { return serveUntil(ctx, server) })
	}
	for _, l := range scrapes {
		g.Go(func() error { return s.serveMetrics(ctx, l) })
	}
	if len(s.config.Announce) > 0 {
		g.Go(func() error { return s.announce(ctx) })
	}
	return g.Wait()
}

// listen opens the UDP and the TCP port on each address: all of them or, with an
// error, none.
func (s *Server) listen() (servers []*dns.Server, err error) {
	streamQuota := newQuota(maxStreams, maxStreamsPerClient)
	var open []io.Closer
	defer func() {
		if err != nil {
			for _, l := range open {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	for _, address := range slices.Concat(s.config.Addresses, s.config.Unannounced) {
		at := net.JoinHostPort(address, strconv.Itoa(s.config.Port))
		packets, err := net.ListenPacket("udp", at)
		if err != nil {
			return nil, fmt.Errorf("listen for DNS on %s: %w", at, err)
		}
		open = append(open, packets)
		streams, err := net.Listen("tcp", at)
		if err != nil {
			return nil, fmt.Errorf("listen for DNS on %s: %w", at, err)
		}
		open = append(open, streams)
		servers = append(servers, &dns.Server{PacketConn: packets}, &dns.Server{Listener: listener{streams, s.clients, streamQuota}})
	}
	return servers, nil
}

// serveUntil runs a server until ctx ends and the server has shut down.
func serveUntil(ctx context.Context, server *dns.Server) error {
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

// answer answers one query, unless its client has too many under way. If that panics,
// the answer is SERVFAIL.
func (s *Server) answer(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) {
	under, leave, ok := s.turns.enter(ctx, clientAt(w.RemoteAddr()))
	if !ok {
		klog.FromContext(ctx).V(3).Info("Query dropped: its client has too many under way", "client", w.RemoteAddr().String())
		return
	}
	defer leave()
	err := supervise.Call(func() error { s.resolve(under, w, query); return nil })
	if err != nil {
		s.counts.panicked()
		supervise.RecordPanic(ctx, err)
		_ = w.WriteMsg(new(dns.Msg).SetRcode(query, dns.RcodeServerFailure))
	}
}

func (s *Server) resolve(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) {
	began, by := time.Now(), ""
	reply := new(dns.Msg).SetReply(query)
	reply.RecursionAvailable = true
	client := clientAt(w.RemoteAddr())
	end, ok := s.turns.take(ctx, client)
	if !ok {
		return
	}
	end = sync.OnceFunc(end)
	defer end()
	switch {
	case !s.clients.allowed(w.RemoteAddr()):
		reply.Rcode = dns.RcodeRefused
	case query.Opcode != dns.OpcodeQuery:
		reply.Rcode = dns.RcodeNotImplemented
	case len(query.Question) != 1:
		reply.Rcode = dns.RcodeFormatError
	case query.IsEdns0() != nil && query.IsEdns0().Version() != 0:
		reply.Rcode = dns.RcodeBadVers
	case query.Question[0].Qclass != dns.ClassINET || isTransfer(query.Question[0].Qtype):
		reply.Rcode = dns.RcodeRefused
	case !s.zone.Answer(reply, query.Question[0]):
		end() // it is the turn of others while resolvers answer
		reply, by = s.forward.find(ctx, client, query)
	default:
		by = byZone
		if lastAlias(reply) != nil {
			end()
			s.addAliasTargets(ctx, client, query, reply)
		}
	}
	size := dns.MinMsgSize
	if opt := query.IsEdns0(); opt != nil {
		size = min(max(size, int(opt.UDPSize())), maxDatagram)
		if reply.IsEdns0() == nil {
			reply.SetEdns0(maxDatagram, false)
		}
	}
	if _, isTCP := w.RemoteAddr().(*net.TCPAddr); isTCP {
		size = dns.MaxMsgSize
	}
	shuffleAddresses(reply.Answer)
	reply.Truncate(size)
	data, err := reply.Pack()
	end() // a client may take nothing of what is written to its stream
	s.counts.answered(w.RemoteAddr(), query, reply.Rcode, len(data), by, time.Since(began))
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Answer not sent", "client", w.RemoteAddr().String(), "err", err)
	}
}

// isTransfer reports whether a question is for a whole zone.
func isTransfer(qtype uint16) bool { return qtype == dns.TypeAXFR || qtype == dns.TypeIXFR }

// shuffleAddresses puts the addresses among the records in random order, as
// most clients use the first.
func shuffleAddresses(records []dns.RR) {
	var at []int
	for i, rr := range records {
		if t := rr.Header().Rrtype; t == dns.TypeA || t == dns.TypeAAAA {
			at = append(at, i)
		}
	}
	rand.Shuffle(len(at), func(i, j int) { records[at[i]], records[at[j]] = records[at[j]], records[at[i]] })
}

// lastAlias returns the last record of a reply if it is an alias, otherwise nil.
func lastAlias(reply *dns.Msg) *dns.CNAME {
	if len(reply.Answer) == 0 {
		return nil
	}
	last, _ := reply.Answer[len(reply.Answer)-1].(*dns.CNAME)
	return last
}

// answerInTurn waits for the client's turn and fills in a reply, if the zone is responsible
// for it. It returns false if ctx ends before.
func (s *Server) answerInTurn(ctx context.Context, client netip.Addr, reply *dns.Msg) (inZone, ok bool) {
	end, ok := s.turns.take(ctx, client)
	if !ok {
		return false, false
	}
	defer end()
	return s.zone.Answer(reply, reply.Question[0]), true
}

// addAliasTargets adds the addresses that the alias of an ExternalName Service
// resolves to.
func (s *Server) addAliasTargets(ctx context.Context, client netip.Addr, query, reply *dns.Msg) {
	const maxAliases = 8
	question := query.Question[0]
	if question.Qtype != dns.TypeA && question.Qtype != dns.TypeAAAA {
		return
	}
	for range maxAliases {
		last := lastAlias(reply)
		if last == nil {
			return
		}
		next := new(dns.Msg).SetQuestion(last.Target, question.Qtype)
		answer := new(dns.Msg).SetReply(next)
		if inZone, ok := s.answerInTurn(ctx, client, answer); !ok {
			return
		} else if !inZone {
			answer = s.forward.ask(ctx, client, next)
		}
		reply.Answer = append(reply.Answer, answer.Answer...)
		if len(answer.Answer) == 0 {
			return
		}
	}
}
