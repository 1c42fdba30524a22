package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/http"
	"time"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/ingress/table"
)

// Serve serves the connections of a listener until ctx ends: HTTP/1.1 and HTTP/2, with
// TLS if secure is set. Then it takes no more connections, waits up to drainTimeout for
// requests in progress, ends what is left, and returns nil. It closes the listener.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, secure bool) error {
	var config *tls.Config
	if secure {
		config = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.getCertificate}
	}
	server := p.newServer(ctx, config)
	// Requests go on while the server drains. What is left then, such as WebSockets, of
	// which the server knows nothing any more, ends with this context.
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server.BaseContext = func(net.Listener) context.Context { return requests }
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		drain(server)
	})
	bounded := &listener{Listener: l, connections: p.connections}
	var err error
	if secure {
		err = server.ServeTLS(bounded, "", "")
	} else {
		err = server.Serve(bounded)
	}
	if stop() { // the server has ended by itself
		_ = server.Close()
		return err
	}
	<-drained
	return nil
}

// newServer returns a server of the proxy, with TLS if config is not nil.
func (p *Proxy) newServer(ctx context.Context, config *tls.Config) *http.Server {
	server := httpserver.New(ctx, p, config)
	server.MaxHeaderBytes, server.ConnState = maxHeaderBytes, followHeads
	server.ReadTimeout, server.WriteTimeout = 0, 0 // patientBody and LimitUnread bound them
	server.HTTP2.MaxReceiveBufferPerConnection, server.HTTP2.MaxReceiveBufferPerStream = 512<<10, streamBuffer
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// drain ends a server.
func drain(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close() // of the connections that are left
	}
}

// getCertificate returns the certificate for a client's server name.
func (p *Proxy) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := p.table.Load().Certificate(table.Host(hello.ServerName)); c != nil {
		return c, nil
	}
	return p.certificate, nil
}

// defaultCertificateName is the common name of the certificate for names that have no
// other.
const defaultCertificateName = "Coracle Ingress Default Certificate"

// selfSigned returns a certificate that no client trusts.
func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: defaultCertificateName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{encoded}, PrivateKey: key}, nil
}
