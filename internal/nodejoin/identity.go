package nodejoin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/kubelet/certificate"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Files is the directory where a node that has joined keeps its identity: that of
// its kubelet, which all of its components have.
type Files string

// Authority returns the file with the cluster's authority.
func (f Files) Authority() string { return filepath.Join(string(f), "ca.crt") }

// Kubeconfig returns the file that says where the API server is and which
// certificate the node has.
func (f Files) Kubeconfig() string { return filepath.Join(string(f), "kubelet.kubeconfig") }

// Certificates returns the directory of the node's certificates.
func (f Files) Certificates() string { return filepath.Join(string(f), "pki") }

// bootstrap returns the file with the token, while there is no certificate.
func (f Files) bootstrap() string { return filepath.Join(string(f), "bootstrap.kubeconfig") }

// options returns how the node requests its client certificates.
func (f Files) options(node string) *certificate.ClientOptions {
	return &certificate.ClientOptions{Kubeconfig: f.Kubeconfig(), Directory: f.Certificates(), NodeName: node, UserAgent: "coracle/kubelet"}
}

// Request gives a node its identity, unless the files have one that is valid: it
// requests a client certificate with a bootstrap token, and waits until that is
// issued or ctx ends. The token is not kept.
func (f Files) Request(ctx context.Context, c *Cluster, token bootstraptoken.Token, node string) error {
	content, err := c.Kubeconfig(token)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	for path, data := range map[string][]byte{f.Authority(): c.Authority, f.bootstrap(): content} {
		if err := sharedfile.Replace(path, sharedfile.Content{Data: data, Mode: 0o600, Durable: true}); err != nil {
			return err
		}
	}
	o := f.options(node)
	o.BootstrapKubeconfig = f.bootstrap()
	err = certificate.Bootstrap(ctx, o)
	if removed := os.Remove(f.bootstrap()); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return fmt.Errorf("request the certificate of node %s: %w", node, err)
	}
	return nil
}

// Renew renews the client certificate of a node until ctx ends. It removes the token
// that a Request has left which was killed.
func (f Files) Renew(ctx context.Context, node string) error {
	if err := os.Remove(f.bootstrap()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c, err := certificate.NewClient(f.options(node))
	if err != nil {
		return err
	}
	c.Run(ctx)
	return nil
}

// Config returns the configuration of clients with the identity of the node. It
// returns fs.ErrNotExist if the node has not joined.
func (f Files) Config() (*rest.Config, error) {
	if _, err := os.Stat(f.Kubeconfig()); err != nil {
		return nil, err
	}
	return clientcmd.BuildConfigFromFlags("", f.Kubeconfig())
}
