package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"testing"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/pki"
)

// TestAnnouncedAuthorities shows that a handshake names the authorities of
// client certificates, and those that took their place since the last one.
func TestAnnouncedAuthorities(t *testing.T) {
	open := func() *pki.Directory {
		d, err := pki.Open(t.TempDir(), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d, other := open(), open()
	serving, err := d.Issue(pki.Component("it"))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := d.Issue(pki.Admin())
	if err != nil {
		t.Fatal(err)
	}
	current := d.Cluster().PEM
	config := &tls.Config{GetCertificate: serving.GetCertificate, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	httpserver.AdvertiseClientCAs(config, joined(func() []byte { return current() }, d.FrontProxy().PEM))
	handshake := func() (named [][]byte, shown []*x509.Certificate) {
		t.Helper()
		listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		served := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				secure := conn.(*tls.Conn)
				err = errors.Join(secure.Handshake(), secure.Close())
				shown = secure.ConnectionState().PeerCertificates
			}
			served <- err
		}()
		client := admin.ClientConfig(d.Cluster())
		client.ServerName, client.NextProtos = "localhost", []string{"h2"}
		client.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			named = r.AcceptableCAs
			return admin.GetClientCertificate(r)
		}
		raw, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(raw, client)
		defer func() { _ = conn.Close() }()
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != "h2" {
			t.Errorf("protocol %q", got)
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		return named, shown
	}
	has := func(named [][]byte, a *pki.Authority) bool {
		return slices.ContainsFunc(named, func(n []byte) bool { return string(n) == string(a.Certificate().RawSubject) })
	}
	named, shown := handshake()
	if len(named) != 2 || !has(named, d.Cluster()) || !has(named, d.FrontProxy()) {
		t.Errorf("%d authorities are named, want the clients' and the front proxies'", len(named))
	}
	if len(shown) != 1 {
		t.Error("the client's certificate did not arrive")
	}
	current = func() []byte { return slices.Concat(d.Cluster().PEM(), other.FrontProxy().PEM()) }
	if named, _ := handshake(); len(named) != 3 {
		t.Errorf("%d authorities are named after the file changed, want 3", len(named))
	}
}
