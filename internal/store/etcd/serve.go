package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// network is how other machines reach a member. etcd's own listeners take any number of
// connections, so that it gets none for TCP.
type network struct {
	peers    *endpoint    // nil for a single member
	clients  *endpoint    // nil without Config.ClientURL
	services *grpc.Server // of clients; nil before serveClients
}

// listen listens at the URLs of a configuration. Who connects waits until it is served.
func (c Config) listen(ctx context.Context, ec *embed.Config) (n network, err error) {
	defer func() {
		if err != nil {
			n.close()
		}
		if errors.Is(err, syscall.EADDRNOTAVAIL) && c.PeerURL != "" && c.ClientURL != "" {
			err = fmt.Errorf("%w: give this machine the address again, or move the member to another one with coracle stop and then coracle up --several-servers", err)
		}
	}()
	if c.PeerURL != "" {
		if n.peers, err = listen(ctx, ec.AdvertisePeerUrls[0], ec.PeerTLSInfo); err != nil {
			return n, err
		}
		n.peers.listener = promptListener{n.peers.listener}
		if config := n.peers.server.TLSConfig; config != nil && !c.PeersAnywhere {
			requireOwnAddress(config)
		}
	}
	if c.ClientURL != "" {
		if n.clients, err = listen(ctx, ec.AdvertiseClientUrls[0], ec.ClientTLSInfo); err != nil {
			return n, err
		}
		n.clients.server.HTTP2.MaxConcurrentStreams = math.MaxInt32 // etcd's default: watches are streams
	}
	return n, nil
}

// servePeers begins to serve the other members.
func (n *network) servePeers(server *embed.Etcd) {
	if n.peers != nil {
		n.peers.serve(etcdhttp.NewPeerHandler(server.GetLogger(), server.Server))
	}
}

// serveClients begins to serve clients what etcd serves at its socket. client is that of
// the election and lock services.
func (n *network) serveClients(server *embed.Etcd, client *clientv3.Client) {
	if n.clients == nil {
		return
	}
	n.services = v3rpc.Server(server.Server, nil, nil)
	v3electionpb.RegisterElectionServer(n.services, v3election.NewElectionServer(client))
	v3lockpb.RegisterLockServer(n.services, v3lock.NewLockServer(client))
	mux := http.NewServeMux()
	etcdhttp.HandleDebug(mux)
	etcdhttp.HandleVersion(mux, server.Server)
	etcdhttp.HandleMetrics(mux)
	etcdhttp.HandleHealth(server.GetLogger(), mux, server.Server)
	n.clients.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			n.services.ServeHTTP(w, r)
		} else {
			mux.ServeHTTP(w, r)
		}
	}))
}

// closeClients ends the connections of clients.
func (n *network) closeClients() {
	n.clients.close()
	if n.services != nil {
		n.services.Stop()
	}
}

// close ends all connections.
func (n *network) close() {
	n.closeClients()
	n.peers.close()
}

// endpoint is a TCP address at which other machines reach a member. It bounds what
// clients hold that have shown no certificate, as the listeners of all components do:
//
//	connect ─ handshake, headers ─ requests ──────────────────────────
//	   └─ HeaderTimeout; counts for     └─ no bound: who has a certificate of
//	      its address, of which the        etcd's authority may read and write
//	      one with most pays               everything
type endpoint struct {
	listener net.Listener
	server   *http.Server
	ended    chan struct{} // closed when server has ended; nil before serve
}

// listen listens at a URL. It refuses names, as etcd does: one may be that of an address
// of this machine alone.
func listen(ctx context.Context, at url.URL, info transport.TLSInfo) (*endpoint, error) {
	if host := at.Hostname(); host != "localhost" && net.ParseIP(host) == nil {
		return nil, fmt.Errorf("listen on %s: want an IP address", at.String())
	}
	e := &endpoint{server: httpserver.New(ctx, nil, nil)}
	if at.Scheme == "https" {
		config, err := info.ServerConfig()
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", at.String(), err)
		}
		e.server.TLSConfig = config
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.Host)
	if err != nil {
		return nil, err
	}
	e.listener = listener
	return e, nil
}

// serve begins to serve.
func (e *endpoint) serve(handler http.Handler) {
	unbounded := &user.DefaultInfo{Name: "etcd", Groups: []string{user.SystemPrivilegedGroup}}
	e.server.Handler = httpserver.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = httpserver.MarkAuthenticated(r.Context(), unbounded)
		handler.ServeHTTP(w, r)
	}))
	e.ended = make(chan struct{})
	go func() {
		defer close(e.ended)
		bounded, serve := httpserver.NewListener(e.listener), e.server.Serve
		if e.server.TLSConfig != nil {
			serve = func(l net.Listener) error { return e.server.ServeTLS(l, "", "") }
		}
		if err := serve(bounded); !errors.Is(err, http.ErrServerClosed) {
			e.server.ErrorLog.Printf("Nobody is served any more at %s: %v", e.listener.Addr(), err)
		}
	}()
}

// close ends the endpoint and its connections. A nil endpoint is none.
func (e *endpoint) close() {
	if e == nil {
		return
	}
	_ = e.server.Close()
	_ = e.listener.Close()
	if e.ended != nil {
		<-e.ended
	}
}

// promptListener is a listener whose connections fail when their client takes nothing
// for rafthttp.ConnWriteTimeout, as those of etcd do: the next stream to a member waits
// until the one before it has ended.
type promptListener struct{ net.Listener }

// Accept implements net.Listener.
func (l promptListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return promptConn{conn}, nil
}

type promptConn struct{ net.Conn }

// Write implements net.Conn.
func (c promptConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(rafthttp.ConnWriteTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// requireOwnAddress makes a server refuse members that connect from other addresses than
// those in their certificates.
func requireOwnAddress(config *tls.Config) {
	each := config.Clone()
	each.NextProtos = nil // members speak HTTP/1.1
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		ctx, from := hello.Context(), hello.Conn.RemoteAddr().String()
		own := each.Clone()
		own.VerifyConnection = func(state tls.ConnectionState) error {
			return checkAddress(ctx, state.PeerCertificates[0], from)
		}
		return own, nil
	}
}

// checkAddress returns an error unless a certificate is that of an address, or of a name
// that has it. One without any is that of all.
func checkAddress(ctx context.Context, certificate *x509.Certificate, from string) error {
	if len(certificate.IPAddresses) == 0 && len(certificate.DNSNames) == 0 {
		return nil
	}
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		return err
	}
	refused := certificate.VerifyHostname(host)
	if refused == nil || len(certificate.DNSNames) == 0 {
		return refused
	}
	names, _ := net.DefaultResolver.LookupAddr(ctx, host)
	for _, name := range names {
		if certificate.VerifyHostname(strings.TrimSuffix(name, ".")) == nil {
			return nil
		}
	}
	for _, name := range certificate.DNSNames {
		if addresses, _ := net.DefaultResolver.LookupHost(ctx, name); slices.Contains(addresses, host) {
			return nil
		}
	}
	return refused
}
