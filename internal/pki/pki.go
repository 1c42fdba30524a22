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
//	└─ etcd-client.crt .key               client that may read and write everything
//	sa.key sa.pub                         service account token keys
//
// A certificate is renewed in the last third of its lifetime and used from the
// next handshake on, without a restart. An authority is renewed with its own
// key, so that all certificates it has signed stay valid.
package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	// backdate makes new certificates valid for machines whose clocks are a
	// little behind.
	backdate = 5 * time.Minute
	// checkPeriod is how often files are checked for renewal and replacement.
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

	mu           sync.Mutex              // guards the following
	etcd         *Authority              // nil until first used
	certificates map[string]*Certificate // by path, without .crt
	copies       []string                // files that hold the cluster authority's certificate
}

// Open loads the authorities and token keys below path, and creates those that
// are missing. A lock makes sure that two processes that open the same new
// directory use the same keys. Open blocks for at most ten seconds on it.
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
	if err := restrictModes(path); err != nil {
		return nil, fmt.Errorf("restrict the permissions of the keys: %w", err)
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

// Path returns the path of the directory.
func (d *Directory) Path() string { return d.path }

// File returns the path of one of the directory's files, such as "ca.crt".
func (d *Directory) File(name string) string { return d.file(name) }

// Cluster returns the authority of client and serving certificates.
func (d *Directory) Cluster() *Authority { return d.cluster }

// FrontProxy returns the authority of aggregated API servers' front proxies,
// whose request headers name the user.
func (d *Directory) FrontProxy() *Authority { return d.frontProxy }

// TokenKeys returns the keys of service account tokens.
func (d *Directory) TokenKeys() *TokenKeys { return d.tokenKeys }

// Issue returns the certificate of a profile: the one on disk if it matches the
// profile and is not due for renewal, or else a new one. Run renews it from then
// on. A second call with the same profile name and other content, such as a new
// node address, replaces the certificate.
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

// authority returns the authority of a name. It creates etcd's authority at its
// first use, since most clusters do not need it.
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

// Publish writes the certificate of the cluster's authority to path. Run writes
// it again whenever it changes.
func (d *Directory) Publish(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.copies, path) {
		d.copies = append(d.copies, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return d.publish(path)
}

// Forget ends the renewal of what is in a directory: certificates of profiles with
// that Dir, and copies of the authority's certificate. It leaves the files. They may
// be gone already: Run makes no directories.
func (d *Directory) Forget(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	inside := func(path string) bool { return filepath.Dir(path) == filepath.Clean(dir) }
	maps.DeleteFunc(d.certificates, func(base string, _ *Certificate) bool { return inside(base) })
	d.copies = slices.DeleteFunc(d.copies, inside)
}

func (d *Directory) publish(path string) error {
	pem := d.cluster.PEM()
	if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, pem) {
		return nil
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: pem, Mode: 0o644})
}

// Run renews certificates in the last third of their lifetime and reloads files
// that were replaced, until ctx ends.
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

// check renews what is due and reloads what was replaced. It logs each failure
// and returns all of them.
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
		failed(err, "Cannot check the certificates", "directory", d.path)
		return errors.Join(failures...)
	}
	defer unlock()
	for _, path := range d.copies {
		if err := d.publish(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // nobody reads in a directory that is gone
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

// due reports whether a certificate must be renewed: it is in the last third of
// its lifetime, or not valid yet because the clock was ahead when it was issued.
func due(cert *x509.Certificate, now time.Time) bool {
	lifetime := cert.NotAfter.Sub(cert.NotBefore)
	return now.Before(cert.NotBefore) || now.After(cert.NotAfter.Add(-lifetime/3))
}
