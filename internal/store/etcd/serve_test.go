package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/pki"
)

// issued returns the files of a certificate of etcd's authority.
func issued(t *testing.T, keys *pki.Directory, p pki.Profile) TLSFiles {
	t.Helper()
	if _, err := keys.Issue(p); err != nil {
		t.Fatal(err)
	}
	return TLSFiles{CA: keys.File(pki.EtcdAuthority + ".crt"), Cert: keys.File(p.Name + ".crt"), Key: keys.File(p.Name + ".key")}
}

func openKeys(t *testing.T) *pki.Directory {
	t.Helper()
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// flood opens connections that send nothing until the server ends the first one. They
// stay open until the test ends.
func flood(t *testing.T, address string) {
	t.Helper()
	open := func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	first, ended := open(), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = first.Read(make([]byte, 1))
	}()
	for range 1 << 12 { // twice what a listener takes, whatever the process may open
		select {
		case <-ended:
			return
		default:
			open()
		}
	}
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("connections that send nothing are kept, however many there are")
	}
}

// Connections that do not finish their handshake are bounded in number and time. Clients
// with a certificate keep theirs, and get new ones.
func TestConnectionsWithoutACertificateAreBounded(t *testing.T) {
	files := issued(t, openKeys(t), pki.EtcdPeer("a", nil, nil))
	info := files.info()
	e, err := listen(t.Context(), url.URL{Scheme: "https", Host: "127.0.0.1:0"}, info)
	if err != nil {
		t.Fatal(err)
	}
	if e.server.ReadHeaderTimeout != httpserver.HeaderTimeout {
		t.Errorf("a handshake and headers may take %s", e.server.ReadHeaderTimeout)
	}
	e.server.ReadHeaderTimeout, e.server.ReadTimeout, e.server.WriteTimeout, e.server.IdleTimeout = 0, 0, 0, 0 // the number alone is tested
	e.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer e.close()
	address := e.listener.Addr().String()

	client := func() (get func() error, dials *atomic.Int32, end func()) {
		config, err := info.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		dials = new(atomic.Int32)
		transport := &http.Transport{TLSClientConfig: config, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
		return func() error {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, http.NoBody)
			if err != nil {
				return err
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				return err
			}
			return response.Body.Close()
		}, dials, transport.CloseIdleConnections
	}
	get, dials, end := client()
	defer end()
	if err := get(); err != nil {
		t.Fatal(err)
	}
	flood(t, address)
	if err := get(); err != nil || dials.Load() != 1 {
		t.Errorf("a client with a certificate lost its connection: %v, %d connections", err, dials.Load())
	}
	get, _, end = client()
	defer end()
	if err := get(); err != nil {
		t.Errorf("a client with a certificate gets no connection: %v", err)
	}
}

// Members join, write and gain their vote, and clients are answered, while others hold
// as many connections to their ports as they can.
func TestMembersAmongOthers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	at := func() string { return fmt.Sprintf("https://127.0.0.1:%d", freeport.For(t)) }
	urlA, urlB, clients := at(), at(), at()
	keys := openKeys(t)
	config := func(name, peerURL string) Config {
		return Config{Dir: t.TempDir(), Name: name, PeerURL: peerURL, InitialCluster: name + "=" + peerURL, PeerTLS: issued(t, keys, pki.EtcdPeer(name, nil, nil))}
	}
	first := config("a", urlA) // which looks at its members' addresses
	first.ClientURL, first.ClientTLS = clients, issued(t, keys, pki.EtcdServer("a", nil, nil))
	a, _ := started(ctx, t, first)
	for _, port := range []string{urlA, clients} {
		flood(t, strings.TrimPrefix(port, "https://"))
	}
	client := issued(t, keys, pki.EtcdClient())
	members, err := DialMembers(Endpoints{URLs: []string{clients}, CAFile: client.CA, CertFile: client.Cert, KeyFile: client.Key}, klog.FromContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = members.Close() }()
	_, initial, err := members.Add(ctx, "b", urlB)
	if err != nil {
		t.Fatal(err)
	}
	second := config("b", urlB)
	second.InitialCluster, second.Existing, second.PeersAnywhere = initial, true, true
	b, _ := started(ctx, t, second)
	awaitVote(ctx, t, b)
	if _, err := b.Create(ctx, "/by-b", []byte("v"), 0); err != nil {
		t.Error(err)
	}
	kv, err := a.Get(ctx, "/by-b")
	if err != nil || string(kv.Value) != "v" {
		t.Errorf("%q, %v", kv.Value, err)
	}
}

// Clients at the port get what etcd serves at its socket, and only with a certificate.
func TestServedClients(t *testing.T) {
	t.Parallel()
	keys := openKeys(t)
	at := fmt.Sprintf("https://127.0.0.1:%d", freeport.For(t))
	_, _ = started(t.Context(), t, Config{Dir: t.TempDir(), ClientURL: at, ClientTLS: issued(t, keys, pki.EtcdServer("a", nil, nil))})
	client := issued(t, keys, pki.EtcdClient()).info()
	config, err := client.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	read := func(config *tls.Config, u string) int {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for _, path := range []string{"/health", "/version", "/metrics"} {
		if status := read(config, at+path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, TLS: config, Logger: zapLogger(klog.Background())})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	watched, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	events := c.Watch(watched, "/key", clientv3.WithCreatedNotify())
	if created := <-events; !created.Created {
		t.Fatalf("no watch: %v", created.Err())
	}
	if _, err := c.Put(watched, "/key", "v"); err != nil {
		t.Fatal(err)
	}
	if seen := <-events; len(seen.Events) != 1 || string(seen.Events[0].Kv.Value) != "v" {
		t.Errorf("watched %v, %v", seen.Events, seen.Err())
	}
	bare := config.Clone()
	bare.GetClientCertificate = nil
	if status := read(bare, at+"/health"); status != 0 {
		t.Errorf("without a certificate: %d", status)
	}
}

// A stream to a member that takes nothing ends, so that the next one of it begins.
func TestMembersThatTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, other := net.Pipe()
		defer func() { _ = other.Close() }()
		began := time.Now()
		_, err := promptConn{conn}.Write([]byte("entries"))
		if failed, ok := errors.AsType[net.Error](err); !ok || !failed.Timeout() || time.Since(began) != rafthttp.ConnWriteTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A member that shows the certificate of another address is refused, unless
// Config.PeersAnywhere says otherwise.
func TestAddressesOfMembers(t *testing.T) {
	certificate, err := openKeys(t).Issue(pki.EtcdPeer("a", nil, []net.IP{net.IPv4(192, 0, 2, 1)}))
	if err != nil {
		t.Fatal(err)
	}
	named, unnamed := *certificate.Leaf(), *certificate.Leaf()
	named.DNSNames = nil
	unnamed.DNSNames, unnamed.IPAddresses = nil, nil
	for from, allowed := range map[string]bool{"192.0.2.1:1": true, "127.0.0.1:1": true, "[::1]:1": true, "192.0.2.2:1": false} {
		if err := checkAddress(t.Context(), &named, from); (err == nil) != allowed {
			t.Errorf("from %s: %v", from, err)
		}
		if err := checkAddress(t.Context(), &unnamed, from); err != nil {
			t.Errorf("without names, from %s: %v", from, err)
		}
	}
	certificate, err = openKeys(t).Issue(pki.EtcdPeer("a", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	byName := *certificate.Leaf()
	byName.IPAddresses = nil
	if err := checkAddress(t.Context(), &byName, "127.0.0.1:1"); err != nil {
		t.Errorf("by the name localhost: %v", err)
	}
	files := issued(t, openKeys(t), pki.EtcdPeer("a", nil, nil))
	for _, anywhere := range []bool{false, true} {
		c := Config{PeerURL: "https://127.0.0.1:0", PeersAnywhere: anywhere}
		n, err := c.listen(t.Context(), &embed.Config{AdvertisePeerUrls: []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}, PeerTLSInfo: files.info()})
		if err != nil {
			t.Fatal(err)
		}
		defer n.close()
		config := n.peers.server.TLSConfig
		if config.ClientAuth != tls.RequireAndVerifyClientCert {
			t.Errorf("anywhere %v: %v", anywhere, config.ClientAuth)
		}
		if anywhere {
			if config.GetConfigForClient != nil || config.VerifyConnection != nil {
				t.Error("the addresses of members are looked at")
			}
			continue
		}
		for from, allowed := range map[string]bool{"192.0.2.1": true, "192.0.2.2": false} {
			own, err := config.GetConfigForClient(&tls.ClientHelloInfo{Conn: connFrom{ip: from}})
			if err != nil || own.ClientAuth != tls.RequireAndVerifyClientCert {
				t.Fatalf("%v, %v", own, err)
			}
			if err := own.VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{&named}}); (err == nil) != allowed {
				t.Errorf("a member from %s: %v", from, err)
			}
		}
	}
}

// connFrom is a connection from an address.
type connFrom struct {
	net.Conn
	ip string
}

func (c connFrom) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.ip), Port: 1} }

// A port is that of an address: a name may have another one on each machine.
func TestNamesAreNotListenedAt(t *testing.T) {
	for host, allowed := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "a.example:0": false, "": false} {
		e, err := listen(t.Context(), url.URL{Scheme: "http", Host: host}, transport.TLSInfo{})
		e.close()
		if (err == nil) != allowed {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestListenAtALostAddress checks that a member whose machine lacks its address says what
// moves it, if others can join it.
func TestListenAtALostAddress(t *testing.T) {
	const peers, clients = "http://192.0.2.1:2380", "http://192.0.2.1:2379"
	for _, c := range []struct {
		config Config
		moves  bool
	}{
		{Config{Name: "a", PeerURL: peers, InitialCluster: "a=" + peers, ClientURL: clients}, true},
		{Config{Name: "a", PeerURL: peers, InitialCluster: "a=" + peers}, false},
		{Config{ClientURL: clients}, false},
	} {
		c.config.Dir = t.TempDir()
		_, err := Embed(t.Context(), c.config)
		if !errors.Is(err, syscall.EADDRNOTAVAIL) || strings.Contains(err.Error(), "coracle up --several-servers") != c.moves {
			t.Errorf("at %q and %q: %v", c.config.PeerURL, c.config.ClientURL, err)
		}
	}
}
