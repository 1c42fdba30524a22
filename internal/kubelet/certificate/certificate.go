// Package certificate obtains and renews the certificates of a kubelet with
// CertificateSigningRequests. It corresponds to upstream's packages certificate and
// certificate/bootstrap.
//
//	bootstrap token ──first request──▶ client certificate ──renewals──▶ client certificate ...
//	                                          │
//	                                          └──requests──▶ serving certificate ...
//
// A directory keeps each certificate with its key in one file. A link with the
// name kubelet-client-current.pem or kubelet-server-current.pem leads to the
// newest.
package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/pki"
)

const (
	clientName  = "kubelet-client"
	servingName = "kubelet-server"
)

// Renewed is a certificate that is requested, stored and renewed before it
// expires.
type Renewed struct {
	manager certificate.Manager
	changed func() // after each renewal; may be nil
	current atomic.Pointer[tls.Certificate]
	first   chan struct{} // closed when there is a certificate
	once    sync.Once     // closes first
}

// store passes each certificate that is obtained to the Renewed that it is of.
type store struct {
	certificate.FileStore
	of *Renewed
}

// Update implements certificate.Store.
func (s store) Update(cert, key []byte) (*tls.Certificate, error) {
	obtained, err := s.FileStore.Update(cert, key)
	if err == nil {
		s.of.use(obtained)
	}
	return obtained, err
}

// newRenewed returns a certificate that is kept in directory under name. config
// has the request and the signer. certFile and keyFile are used while the
// directory has no certificate.
func newRenewed(name, directory, certFile, keyFile string, config certificate.Config) (*Renewed, error) {
	r := &Renewed{first: make(chan struct{})}
	files, err := certificate.NewFileStore(name, directory, directory, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("open the certificates in %s (--cert-dir): %w", directory, err)
	}
	config.CertificateStore = store{files, r}
	config.Name = name
	if r.manager, err = certificate.NewManager(&config); err != nil {
		return nil, fmt.Errorf("read the certificate %s in %s: %w", name, directory, err)
	}
	if current := r.manager.Current(); current != nil {
		r.use(current)
	}
	return r, nil
}

// dropDamaged removes the link to the newest certificate in directory if its file
// has no certificate with its key. A machine that loses power may leave such a
// file. The damaged file itself stays, so that an administrator can look for the
// cause.
func dropDamaged(name, directory string) error {
	link := newest(name, directory)
	info, err := os.Lstat(link)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return nil
	} else if err != nil {
		return fmt.Errorf("open the certificates in %s (--cert-dir): %w", directory, err)
	}
	_, damage := tls.LoadX509KeyPair(link, link)
	var unreadable *fs.PathError
	switch {
	case damage == nil || errors.Is(damage, fs.ErrNotExist):
		return nil
	case errors.As(damage, &unreadable):
		return fmt.Errorf("open the certificates in %s (--cert-dir): %w", directory, damage)
	}
	klog.Background().Error(damage, "Requesting a new certificate, because the stored one is damaged", "file", link)
	if err := os.Remove(link); err != nil {
		return fmt.Errorf("remove the link to a damaged certificate: %w", err)
	}
	return nil
}

func (r *Renewed) use(c *tls.Certificate) {
	r.current.Store(c)
	r.once.Do(func() { close(r.first) })
	if r.changed != nil {
		r.changed()
	}
}

// Run requests and renews the certificate until ctx ends.
func (r *Renewed) Run(ctx context.Context) {
	r.manager.Start()
	<-ctx.Done()
	r.manager.Stop()
}

// Wait waits for the first certificate and returns the current one.
func (r *Renewed) Wait(ctx context.Context) (*tls.Certificate, error) {
	select {
	case <-r.first:
		return r.current.Load(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the certificate has not been issued yet: %w", ctx.Err())
	}
}

// Current returns the newest certificate, nil before the first.
func (r *Renewed) Current() *tls.Certificate { return r.current.Load() }

// left returns the seconds for which the certificate is valid, +Inf if there is
// none.
func (r *Renewed) left() float64 {
	c := r.current.Load()
	if c == nil || c.Leaf == nil {
		return math.Inf(1)
	}
	return math.Trunc(time.Until(c.Leaf.NotAfter).Seconds())
}

// errNoServing is the error of handshakes before there is a certificate.
var errNoServing = errors.New("no serving certificate available for the kubelet")

// GetCertificate is for the tls.Config of a server.
func (r *Renewed) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := r.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNoServing
}

// ServingOptions say for which node there is a serving certificate, and where it is kept.
type ServingOptions struct {
	Directory string // of the certificates
	// CertFile and KeyFile have the certificate of the administrator, which is used until
	// the signer has issued another. Both may be empty.
	CertFile, KeyFile string
	NodeName          string
	API               kubernetes.Interface
	// Addresses returns the addresses of the Node object. A change of them causes a new
	// request.
	Addresses func() []v1.NodeAddress
	// DNSOnly requests a certificate also for a node without IP addresses that has names
	// (AllowDNSOnlyNodeCSR).
	DNSOnly bool
	Metrics prometheus.Registerer
}

// Serving returns the serving certificate of a node, which the signer
// kubernetes.io/kubelet-serving issues.
func Serving(o *ServingOptions) (*Renewed, error) {
	if err := dropDamaged(servingName, o.Directory); err != nil {
		return nil, err
	}
	failed, age := servingCounts(o.Metrics)
	serving, err := newRenewed(servingName, o.Directory, o.CertFile, o.KeyFile, certificate.Config{
		SignerName:  certificatesv1.KubeletServingSignerName,
		GetUsages:   certificate.DefaultKubeletServingGetUsages,
		GetTemplate: func() *x509.CertificateRequest { return servingRequest(o.NodeName, o.Addresses(), o.DNSOnly) },
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return o.API, nil },

		CertificateRenewFailure: failed, CertificateRotation: age,
	})
	if err == nil {
		o.Metrics.MustRegister(timeLeft("server", "serving", serving))
	}
	return serving, err
}

// servingRequest returns the request for a certificate for the addresses, nil if
// there is no IP address, nor, with dnsOnly, a name.
func servingRequest(nodeName string, addresses []v1.NodeAddress, dnsOnly bool) *x509.CertificateRequest {
	names, ips := map[string]bool{}, map[string]net.IP{}
	for _, a := range addresses {
		ip := net.ParseIP(a.Address)
		switch a.Type {
		case v1.NodeHostName, v1.NodeInternalDNS, v1.NodeExternalDNS:
			if ip == nil && a.Address != "" {
				names[a.Address] = true
			}
		}
		if ip != nil {
			ips[ip.String()] = ip
		}
	}
	if len(ips) == 0 && (!dnsOnly || len(names) == 0) {
		return nil
	}
	request := &x509.CertificateRequest{Subject: nodeSubject(nodeName), DNSNames: slices.Sorted(maps.Keys(names))}
	for _, key := range slices.Sorted(maps.Keys(ips)) {
		request.IPAddresses = append(request.IPAddresses, ips[key])
	}
	return request
}

func nodeSubject(nodeName string) pkix.Name {
	return pkix.Name{CommonName: pki.NodePrefix + nodeName, Organization: []string{user.NodesGroup}}
}

// newest returns the path of the newest certificate of a name in a directory.
func newest(name, directory string) string { return filepath.Join(directory, name+"-current.pem") }
