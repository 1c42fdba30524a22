package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Kubeconfig is the kubeconfig of one identity for one cluster.
type Kubeconfig struct {
	Cluster   string // name of the cluster and of the context
	Server    string // https://host:port
	User      string // name of the user's entry
	Authority *Authority
	Identity  *Certificate
	// Embed includes keys and certificates in the file, for users on other
	// machines. Without it, the file refers to the files of the directory, and
	// stays valid when certificates are renewed.
	Embed bool
	// AuthorityFile is the name of the authority's certificate in a directory
	// that also has the kubeconfig and the identity's files. The kubeconfig then
	// refers to them by name alone, so that the directory can be moved.
	AuthorityFile string
}

// ReadAdmin reads the cluster's authority and the admin's certificate from a
// directory that Open has filled. It writes nothing.
func ReadAdmin(path string) (*Authority, *Certificate, error) {
	if err := checkOwners(path); err != nil {
		return nil, nil, err
	}
	a := &Authority{base: filepath.Join(path, ClusterAuthority)}
	cert, pem, err := readCertificate(a.base + ".crt")
	if err != nil {
		return nil, nil, err
	}
	a.set(cert, pem, nil)
	profile := Admin()
	c := &Certificate{base: filepath.Join(path, profile.Name), authority: a, profile: profile}
	return a, c, c.load()
}

// Config returns the content of the file.
func (k Kubeconfig) Config() *clientcmdapi.Config {
	cluster, user := clientcmdapi.NewCluster(), clientcmdapi.NewAuthInfo()
	cluster.Server = k.Server
	switch {
	case k.Embed:
		cluster.CertificateAuthorityData = k.Authority.PEM()
		user.ClientCertificateData, user.ClientKeyData = k.Identity.PEM()
	case k.AuthorityFile != "":
		certificate, key := k.Identity.Files()
		cluster.CertificateAuthority = k.AuthorityFile
		user.ClientCertificate, user.ClientKey = filepath.Base(certificate), filepath.Base(key)
	default:
		cluster.CertificateAuthority = k.Authority.base + ".crt"
		user.ClientCertificate, user.ClientKey = k.Identity.Files()
	}
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo = k.Cluster, k.User
	config := clientcmdapi.NewConfig()
	config.Clusters[k.Cluster] = cluster
	config.AuthInfos[k.User] = user
	config.Contexts[k.Cluster] = context
	config.CurrentContext = k.Cluster
	return config
}

// Write replaces the content of path with the kubeconfig.
func (k Kubeconfig) Write(path string) error { return writeKubeconfig(path, k.Config()) }

// WriteOnRenewal writes the kubeconfig to path, and again whenever
// Directory.Run renews the identity's certificate. It calls failed if that
// fails. It must be called before Run.
func (k Kubeconfig) WriteOnRenewal(path string, failed func(error)) error {
	k.Identity.changed = append(k.Identity.changed, func() {
		if err := k.Write(path); err != nil {
			failed(err)
		}
	})
	return k.Write(path)
}

// Merge adds the kubeconfig to the file at path, replaces entries of the same
// names, and makes its context the current one. The file may be missing. It is
// not written if nothing changes.
func (k Kubeconfig) Merge(path string) error {
	existing, err := readKubeconfig(path)
	if err != nil {
		return err
	}
	add := k.Config()
	existing.Clusters[k.Cluster] = add.Clusters[k.Cluster]
	existing.AuthInfos[k.User] = add.AuthInfos[k.User]
	existing.Contexts[k.Cluster] = add.Contexts[k.Cluster]
	existing.CurrentContext = k.Cluster
	return writeKubeconfig(path, existing)
}

func readKubeconfig(path string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s cannot be read (repair or move it away): %w", path, err)
	}
	return config, nil
}

func writeKubeconfig(path string, config *clientcmdapi.Config) error {
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: content, Mode: 0o600})
}
