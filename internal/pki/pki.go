// Package pki issues, renews and reloads the keys and certificates of a
// cluster. They live as files in one directory, under kubeadm's names:
//
//	ca.crt ca.key                         cluster authority
//	├─ apiserver.crt .key                 serving certificate of the API server
//	├─ apiserver-kubelet-client.crt .key  API server to kubelets
//	├─ admin.crt .key, scheduler.crt ...  identities of users and components
//	└─ kubelet.crt .key                   serving certificate of a kubelet
//	front-proxy-ca.crt .key               authority of the aggregation layer
//	└─ front-proxy-client.crt .key
//	etcd-ca.crt .key                      authority of etcd, where it listens on TCP
//	├─ etcd-server-NAME.crt .key          member NAME to clients
//	├─ etcd-peer-NAME.crt .key            member NAME to the other members
//	└─ etcd-client.crt .key               whoever may read and write everything
//	sa.key sa.pub                         service account token keys
//
// A certificate in the last third of its life is renewed while running and
// handed out to the next handshake; nothing has to restart. Authorities renew
// under their own key, so that everything they signed stays valid.
package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/sharedfile"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 365 * 24 * time.Hour
	// backdate lets machines whose clocks are a little behind accept a new certificate.
	backdate = 5 * time.Minute
	// checkPeriod is how often files are looked at for renewal and replacement.
	checkPeriod = 10 * time.Minute
)

// Names of the authorities.
const (
	ClusterAuthority    = "ca"
	FrontProxyAuthority = "front-proxy-ca"
	EtcdAuthority       = "etcd-ca"
)

// Directory is the set of keys and certificates below one path.
type Directory struct {
	path  string
	clock clock.Clock

	cluster    *Authority
	frontProxy *Authority
	tokenKeys  *TokenKeys

	mu           sync.Mutex              // guards what follows
	etcd         *Authority              // nil until something of it is asked for
	certificates map[string]*Certificate // by path, without .crt
	copies       []string                // files that hold the cluster authority's certificate
}

// Open loads the authorities and token keys below path, making those that are
// missing. Two processes that open the same new directory end up with the
// same keys.
func Open(path string, c clock.Clock) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("certificate directory: %w", err)
	}
	unlock, err := lockDirectory(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkOwners(path); err != nil {
		return nil, fmt.Errorf("open the keys: %w", err)
	}
	if err := closeKeys(path); err != nil {
		return nil, fmt.Errorf("close the keys to others: %w", err)
	}
	d := &Directory{path: path, clock: c, certificates: map[string]*Certificate{}}
	if d.cluster, err = openAuthority(d.file(ClusterAuthority), "kubernetes", c.Now()); err != nil {
		return nil, err
	}
	if d.frontProxy, err = openAuthority(d.file(FrontProxyAuthority), "front-proxy-ca", c.Now()); err != nil {
		return nil, err
	}
	if d.tokenKeys, err = openTokenKeys(d.file("sa")); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Directory) file(name string) string { return filepath.Join(d.path, name) }

// Path is the directory itself.
func (d *Directory) Path() string { return d.path }

// File is the absolute path of one of the directory's files, such as "ca.crt".
func (d *Directory) File(name string) string { return d.file(name) }

// Cluster is the authority that client and serving certificates come from.
func (d *Directory) Cluster() *Authority { return d.cluster }

// FrontProxy is the authority behind the request headers of the aggregation layer.
func (d *Directory) FrontProxy() *Authority { return d.frontProxy }

// TokenKeys are the keys of service account tokens.
func (d *Directory) TokenKeys() *TokenKeys { return d.tokenKeys }

// Issue returns the certificate of a profile: the one on disk if it is what
// the profile asks for and not due for renewal, else a new one. From then on
// Run keeps it valid. A second call with the same profile name and another
// content (a new node address, say) replaces the certificate.
func (d *Directory) Issue(p Profile) (*Certificate, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unlock, err := lockDirectory(d.path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	authority, err := d.authority(p.Authority)
	if err != nil {
		return nil, err
	}
	base := d.file(p.Name)
	if p.Dir != "" {
		if err := os.MkdirAll(p.Dir, 0o700); err != nil {
			return nil, err
		}
		base = filepath.Join(p.Dir, p.Name)
	}
	c := d.certificates[base]
	if c == nil {
		c = &Certificate{base: base, authority: authority}
	}
	if err := c.ensure(p, d.clock.Now()); err != nil {
		return nil, err
	}
	d.certificates[base] = c
	return c, nil
}

// authority is the one of a name. That of etcd is made when it is first asked
// for: most clusters have no use for it.
func (d *Directory) authority(name string) (*Authority, error) {
	switch name {
	case FrontProxyAuthority:
		return d.frontProxy, nil
	case EtcdAuthority:
		if d.etcd == nil {
			a, err := openAuthority(d.file(EtcdAuthority), "etcd-ca", d.clock.Now())
			if err != nil {
				return nil, err
			}
			d.etcd = a
		}
		return d.etcd, nil
	}
	return d.cluster, nil
}

// Publish writes the certificate of the cluster's authority to path. From then
// on Run keeps it the newest.
func (d *Directory) Publish(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.copies, path) {
		d.copies = append(d.copies, path)
	}
	return d.publish(path)
}

func (d *Directory) publish(path string) error {
	pem := d.cluster.PEM()
	if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, pem) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: pem, Mode: 0o644})
}

// Run renews what comes into the last third of its life and takes over files
// that somebody replaced, until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	timer := d.clock.NewTimer(checkPeriod)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
			supervise.Report(ctx, "Certificates", d.check(klog.FromContext(ctx)))
			timer.Reset(checkPeriod)
		}
	}
}

// check renews what is due and returns what it could not look after.
func (d *Directory) check(log klog.Logger) error {
	var failures []error
	failed := func(err error, what string, values ...any) {
		log.Error(err, what+", trying again", values...)
		failures = append(failures, fmt.Errorf("%s (%v): %w", what, values[len(values)-1], err))
	}
	now := d.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	authorities := []*Authority{d.cluster, d.frontProxy}
	if d.etcd != nil {
		authorities = append(authorities, d.etcd)
	}
	for _, a := range authorities {
		if renewed, err := a.renew(now); err != nil {
			failed(err, "Cannot renew the authority", "authority", a.base)
		} else if renewed {
			log.Info("Renewed the authority under its own key", "authority", a.base, "notAfter", a.Certificate().NotAfter)
		}
	}
	if err := d.tokenKeys.reload(); err != nil {
		failed(err, "Cannot read the replaced token keys, keeping the former ones", "directory", d.path)
	}
	unlock, err := lockDirectory(d.path)
	if err != nil {
		failed(err, "Cannot look after the certificates", "directory", d.path)
		return errors.Join(failures...)
	}
	defer unlock()
	for _, path := range d.copies {
		if err := d.publish(path); err != nil {
			failed(err, "Cannot write the authority's certificate", "file", path)
		}
	}
	for name, c := range d.certificates {
		changed, err := c.check(now)
		if err != nil {
			failed(err, "Cannot renew the certificate", "certificate", name)
		} else if changed {
			log.Info("Certificate renewed", "certificate", name, "notAfter", c.Leaf().NotAfter)
		}
	}
	return errors.Join(failures...)
}

// due says whether a certificate is in the last third of its life, or not valid
// yet, as one that was issued while the clock was ahead.
func due(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return now.Before(cert.NotBefore) || now.After(cert.NotAfter.Add(-life/3))
}
