package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/pki"
)

// TLS handshakes advertise the current authorities of client certificates, with
// HTTP/2 too.
func TestHandshakeNamesClientAuthorities(t *testing.T) {
	open := func() *pki.Directory {
		d, err := pki.Open(t.TempDir(), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, second := open(), open()
	serving, err := first.Issue(pki.Component("kubelet"))
	if err != nil {
		t.Fatal(err)
	}
	pool := func(d *pki.Directory) *x509.CertPool {
		p := x509.NewCertPool()
		p.AddCert(d.Cluster().Certificate())
		return p
	}
	current := make(chan *x509.CertPool, 1)
	current <- pool(first)
	s, err := Listen(Config{Configuration: newTestConfiguration(), Access: Access{GetCertificate: serving.GetCertificate, ClientCAs: func() *x509.CertPool {
		p := <-current
		current <- p
		return p
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	named := func() string {
		t.Helper()
		var authorities [][]byte
		conn, err := net.Dial("tcp", s.secure.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client := tls.Client(conn, &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{"h2"},
			GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
				authorities = r.AcceptableCAs
				return &tls.Certificate{}, nil
			},
		})
		defer func() { _ = client.Close() }()
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		if protocol := client.ConnectionState().NegotiatedProtocol; protocol != "h2" {
			t.Errorf("protocol %q", protocol)
		}
		if len(authorities) != 1 {
			t.Fatalf("%d authorities are named, want 1", len(authorities))
		}
		return string(authorities[0])
	}
	if named() != string(first.Cluster().Certificate().RawSubject) {
		t.Error("the authority is not named")
	}
	<-current
	current <- pool(second)
	if named() != string(second.Cluster().Certificate().RawSubject) {
		t.Error("the new authority is not named")
	}
}
