package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/supervise"
)

// access is how a node reaches the control plane.
type access interface {
	// with returns a component that runs with clients of the API server. file
	// selects the identity of a remote client, such as apiserver.NodeKubelet.
	// The clients, or the component, wait for the API server.
	with(file string, run func(context.Context, client.Provider) error) func(context.Context) error
	// addresses returns the node's IP addresses, at most one of each family.
	addresses(api *apiserver.Options) ([]net.IP, error)
	// serving returns the kubelet's serving certificate and the authorities of
	// its clients.
	serving(node string, addresses []net.IP) (certificate, authorities, error)
	// reconnect makes the clients open other connections, after the machine has
	// another address.
	reconnect()
}

type (
	certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	authorities = func() *x509.CertPool
)

// inProcessAccess is the access to a control plane in the same process: shared
// memory, and one provider for all components.
type inProcessAccess struct{ plane *controlPlane }

func (a inProcessAccess) with(_ string, run func(context.Context, client.Provider) error) func(context.Context) error {
	return a.plane.servers.with(run)
}

func (inProcessAccess) addresses(api *apiserver.Options) ([]net.IP, error) {
	advertised, err := api.Advertised()
	return []net.IP{advertised}, err
}

func (a inProcessAccess) serving(node string, addresses []net.IP) (certificate, authorities, error) {
	keys := a.plane.keys
	issued, err := keys.Issue(apiserver.KubeletServing(node, addresses))
	if err != nil {
		return nil, nil, err
	}
	return issued.GetCertificate, func() *x509.CertPool { return keys.Cluster().Pool() }, nil
}

// reconnect does nothing: there are no connections.
func (inProcessAccess) reconnect() {}

// remoteAccess is the access over HTTPS with the files in a directory
// (apiserver.NodeAuthority and others). It reads them again when they change.
// Clients wait for the API server.
type remoteAccess struct {
	dir  string
	own  []net.IP // addresses of a further node of the machine; nil for the first
	open *connections
}

func (a remoteAccess) file(name string) string { return filepath.Join(a.dir, name) }

func (a remoteAccess) with(file string, run func(context.Context, client.Provider) error) func(context.Context) error {
	return a.as(file, file, run)
}

// as is with for a component that has the identity in a file, and calls itself by a
// name in requests.
func (a remoteAccess) as(file, component string, run func(context.Context, client.Provider) error) func(context.Context) error {
	return func(ctx context.Context) error {
		provider, err := base.Remote("", a.file(file), component)
		if err != nil {
			return err
		}
		if r, ok := provider.(*client.Remote); ok {
			defer a.open.add(r)()
		}
		supervise.Go(ctx, func() {
			if err := provider.Run(ctx); err != nil {
				supervise.Fail(ctx, err)
			}
		})
		return run(ctx, provider)
	}
}

func (a remoteAccess) reconnect() { a.open.close() }

func (a remoteAccess) addresses(api *apiserver.Options) ([]net.IP, error) {
	if a.own != nil {
		return a.own, nil
	}
	address, err := api.NodeAddress(a.dir)
	return []net.IP{address}, err
}

func (a remoteAccess) serving(string, []net.IP) (certificate, authorities, error) {
	serve, err := pki.ReloadingCertificate(a.file(apiserver.NodeServing), a.file(apiserver.NodeServingKey))
	if err != nil {
		return nil, nil, err
	}
	trust, err := pki.ReloadingAuthority(a.file(apiserver.NodeAuthority))
	return serve, trust, err
}
