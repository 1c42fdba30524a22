// Package dns is the cluster's name server: Kubernetes DNS-Based Service
// Discovery, specification 1.1, out of the informers' indexes, and everything
// else from the machine's own resolvers.
//
//	pod ── kube-dns ClusterIP:53 ──proxy──► node address:port ── this server
//	                                                  ├─ cluster zone: indexes
//	                                                  └─ other: cache, forward
//
// Each server makes itself an endpoint of Service kube-system/kube-dns, so a
// cluster with several nodes has several, and the proxy spreads the queries.
package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
)

// Config of a server.
type Config struct {
	Client *client.Client
	// ClusterDomain is the zone, such as cluster.local.
	ClusterDomain string
	// Address is where to listen, on an address of this node that pods
	// reach; port 0 takes a free one.
	Address netip.AddrPort
	// NodeName names this server's EndpointSlice.
	NodeName string
	// ServiceIP is the ClusterIP of Service kube-dns. When it is not valid,
	// no Service and no endpoint is written.
	ServiceIP netip.Addr
	// ResolvConf names the resolvers for other names; empty is
	// /etc/resolv.conf.
	ResolvConf string
}

// Server is one name server.
type Server struct {
	config  Config
	zone    string
	records *records
	forward *forwarder
	ready   chan struct{}
	bound   netip.AddrPort
}

// New returns a server; Run does the work.
func New(config Config) *Server {
	if config.ResolvConf == "" {
		config.ResolvConf = "/etc/resolv.conf"
	}
	zone := dns.CanonicalName(config.ClusterDomain)
	return &Server{config: config, zone: zone, ready: make(chan struct{})}
}

// Ready is closed when the server answers.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Bound is where the server listens, known once it is ready.
func (s *Server) Bound() netip.AddrPort { return s.bound }

// Run answers queries until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	packets, streams, err := listen(ctx, s.config.Address)
	if err != nil {
		return err
	}
	s.bound = streams.Addr().(*net.TCPAddr).AddrPort()
	upstreams, err := resolvers(s.config.ResolvConf, s.bound.Addr(), s.config.ServiceIP)
	if err != nil {
		_ = packets.Close()
		_ = streams.Close()
		return err
	}
	s.forward = newForwarder(upstreams)
	view, synced, err := newIndexes(s.config.Client.Informers)
	if err != nil {
		_ = packets.Close()
		_ = streams.Close()
		return err
	}
	s.records = &records{zone: s.zone, view: view}
	s.config.Client.Informers.Start(ctx.Done())

	var running sync.WaitGroup
	defer running.Wait()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) { s.serve(ctx, w, query) })
	for _, server := range []*dns.Server{
		{PacketConn: packets, Handler: handler, UDPSize: maxUDP},
		{Listener: streams, Handler: handler},
	} {
		if !cache.WaitForCacheSync(ctx.Done(), synced...) {
			_ = packets.Close()
			_ = streams.Close()
			return nil
		}
		running.Go(func() {
			if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Name server ended", "address", s.bound)
			}
		})
		running.Go(func() {
			<-ctx.Done()
			// It may not have come to serving yet; then closing ends it.
			_ = server.Shutdown()
			_ = packets.Close()
			_ = streams.Close()
		})
	}
	close(s.ready)
	klog.FromContext(ctx).Info("Serving cluster DNS", "zone", s.zone, "address", s.bound, "forwardingTo", upstreams)
	s.publish(ctx)
	<-ctx.Done()
	return nil
}

// listen takes the same port for UDP and TCP.
func listen(ctx context.Context, address netip.AddrPort) (net.PacketConn, net.Listener, error) {
	var config net.ListenConfig
	var failed error
	// A free TCP port may be taken for UDP: another one then.
	for range 10 {
		streams, err := config.Listen(ctx, "tcp", address.String())
		if err != nil {
			return nil, nil, fmt.Errorf("cluster DNS cannot listen on %s (choose another address): %w", address, err)
		}
		packets, err := config.ListenPacket(ctx, "udp", streams.Addr().String())
		if err == nil {
			return packets, streams, nil
		}
		_ = streams.Close()
		failed = err
		if address.Port() != 0 {
			break
		}
	}
	return nil, nil, fmt.Errorf("cluster DNS cannot listen on %s for UDP (choose another address): %w", address, failed)
}

// maxUDP is the largest answer by UDP that cannot be fragmented on the way
// (DNS flag day 2020).
const maxUDP = 1232

// forwardPatience is how long a client's query may wait for other resolvers.
const forwardPatience = 4 * time.Second

func (s *Server) serve(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) {
	ctx, cancel := context.WithTimeout(ctx, forwardPatience)
	defer cancel()
	answer := s.answer(ctx, query)
	if edns := query.IsEdns0(); edns != nil && answer.IsEdns0() == nil {
		answer.SetEdns0(maxUDP, edns.Do())
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		size := dns.MinMsgSize
		if edns := query.IsEdns0(); edns != nil {
			size = min(max(size, int(edns.UDPSize())), maxUDP)
		}
		answer.Truncate(size)
	} else {
		answer.Truncate(dns.MaxMsgSize)
	}
	if err := w.WriteMsg(answer); err != nil {
		klog.FromContext(ctx).V(4).Info("Answer not delivered", "client", w.RemoteAddr(), "err", err)
	}
}

// answer is the reply to a query, which it does not change.
func (s *Server) answer(ctx context.Context, query *dns.Msg) *dns.Msg {
	reply := new(dns.Msg).SetReply(query)
	if query.Opcode != dns.OpcodeQuery {
		reply.Rcode = dns.RcodeNotImplemented
		return reply
	}
	if len(query.Question) != 1 {
		reply.Rcode = dns.RcodeFormatError
		return reply
	}
	question := query.Question[0]
	name := strings.ToLower(question.Name)
	if question.Qclass != dns.ClassINET {
		reply.Rcode = dns.RcodeRefused
		return reply
	}
	var result result
	ours := true
	if dns.IsSubDomain(s.zone, name) {
		result = s.records.lookup(name, question.Qtype)
	} else {
		result, ours = s.records.reverse(name, question.Qtype)
	}
	if !ours {
		return s.forward.exchange(ctx, query)
	}
	reply.Authoritative, reply.RecursionAvailable = true, true
	reply.Rcode = result.rcode
	reply.Answer, reply.Extra = result.answer, result.extra
	for _, rr := range reply.Answer {
		// Clients compare names as they wrote them.
		if strings.EqualFold(rr.Header().Name, question.Name) {
			rr.Header().Name = question.Name
		}
	}
	if result.external != "" {
		s.follow(ctx, reply, result.external, question.Qtype)
	}
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{s.records.soa()}
	}
	return reply
}

// follow adds what an ExternalName leads to, as resolvers that are asked to
// recurse do.
func (s *Server) follow(ctx context.Context, reply *dns.Msg, target string, qtype uint16) {
	if qtype == dns.TypeCNAME {
		return
	}
	if dns.IsSubDomain(s.zone, target) {
		reply.Answer = append(reply.Answer, s.records.lookup(target, qtype).answer...)
		return
	}
	query := new(dns.Msg).SetQuestion(target, qtype)
	if further := s.forward.exchange(ctx, query); further.Rcode == dns.RcodeSuccess {
		reply.Answer = append(reply.Answer, further.Answer...)
	}
}
