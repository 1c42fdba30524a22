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

// access is how a node reaches its cluster.
type access interface {
	// with returns a component that runs with clients of the API server, as
	// one of those that have a file of their own (apiserver.NodeKubelet). Where
	// the clients cannot wait for the API server, the component does.
	with(file string, run func(context.Context, client.Provider) error) func(context.Context) error
	// address is the node's.
	address(api *apiserver.Flags) (net.IP, error)
	// serving is what the kubelet serves with, and whose clients it trusts.
	serving(node string, addresses []net.IP) (certificate, authorities, error)
}

type (
	certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	authorities = func() *x509.CertPool
)

// within is the access to a control plane in the same process: shared memory,
// and one provider for all components.
type within struct{ plane *controlPlane }

func (w within) with(_ string, run func(context.Context, client.Provider) error) func(context.Context) error {
	return w.plane.servers.with(run)
}

func (within) address(api *apiserver.Flags) (net.IP, error) { return api.Advertised() }

func (w within) serving(node string, addresses []net.IP) (certificate, authorities, error) {
	keys := w.plane.keys
	issued, err := keys.Issue(apiserver.KubeletServing(node, addresses))
	if err != nil {
		return nil, nil, err
	}
	return issued.GetCertificate, func() *x509.CertPool { return keys.Cluster().Pool() }, nil
}

// across is the access over HTTPS by the files in a directory
// (apiserver.NodeAuthority and its like), which are read again when they
// change. Clients wait for the API server.
type across struct{ dir string }

func (a across) file(name string) string { return filepath.Join(a.dir, name) }

func (a across) with(file string, run func(context.Context, client.Provider) error) func(context.Context) error {
	return func(ctx context.Context) error {
		provider, err := base.Remote(a.file(file), file)
		if err != nil {
			return err
		}
		supervise.Go(ctx, func() {
			if err := provider.Run(ctx); err != nil {
				supervise.Fail(ctx, err)
			}
		})
		return run(ctx, provider)
	}
}

func (a across) address(api *apiserver.Flags) (net.IP, error) { return api.NodeAddress(a.dir) }

func (a across) serving(string, []net.IP) (certificate, authorities, error) {
	serve, err := pki.FollowCertificate(a.file(apiserver.NodeServing), a.file(apiserver.NodeServingKey))
	if err != nil {
		return nil, nil, err
	}
	trust, err := pki.FollowAuthority(a.file(apiserver.NodeAuthority))
	return serve, trust, err
}
