package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
)

// ClientOptions say where a kubelet has its client certificate, and how it gets
// the first.
type ClientOptions struct {
	// Kubeconfig is the kubelet's own. If it does not exist or its certificate
	// has expired, BootstrapKubeconfig is used for a new one.
	Kubeconfig string
	// BootstrapKubeconfig has credentials that may only request certificates.
	// It may be empty.
	BootstrapKubeconfig string
	Directory           string // of the certificates
	NodeName            string
	UserAgent           string
}

// Client is the identity of a kubelet: its client certificate, which is renewed,
// and clients of the API server that use the newest.
type Client struct {
	*Renewed
	provider *client.Remote
	failed   prometheus.Counter
	// without returns the configuration of requests for a certificate while none is
	// valid.
	without func() *rest.Config
}

// NewClient returns a kubelet's identity. If the options have no valid
// kubeconfig, it writes one for the certificate that Run will request, and
// requests of the provider wait for that certificate.
func NewClient(o *ClientOptions) (*Client, error) {
	requests, config, bootstrap, err := o.configs()
	if err != nil {
		return nil, err
	}
	c := &Client{failed: clientCount(), without: func() *rest.Config { return requests }}
	if bootstrap || config.CertFile != "" || len(config.CertData) > 0 {
		options := *o
		c.without = func() *rest.Config { return options.withoutCertificate(requests) }
	}
	request := o.request()
	request.CertificateRenewFailure = c.failed
	request.ClientsetFn = func(current *tls.Certificate) (kubernetes.Interface, error) {
		if current == nil {
			return kubernetes.NewForConfig(c.without())
		}
		return c.provider.Kubernetes(), nil
	}
	certFile, keyFile := config.CertFile, config.KeyFile
	if bootstrap {
		certFile, keyFile = "", ""
		if err := dropDamaged(clientName, o.Directory); err != nil {
			return nil, err
		}
	} else if request.BootstrapCertificatePEM, request.BootstrapKeyPEM = config.CertData, config.KeyData; len(config.CertData) > 0 {
		certFile, keyFile = "", ""
	}
	if c.Renewed, err = newRenewed(clientName, o.Directory, certFile, keyFile, request); err != nil {
		return nil, err
	}
	if c.provider, c.changed, err = client.NewRotating(config, c.Wait); err != nil {
		return nil, err
	}
	return c, nil
}

// Provider returns clients of the API server with the newest certificate.
func (c *Client) Provider() client.Provider { return c.provider }

// request returns how client certificates are requested.
func (o *ClientOptions) request() certificate.Config {
	return certificate.Config{
		SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		GetUsages:  certificate.DefaultKubeletClientGetUsages,
		Template:   &x509.CertificateRequest{Subject: nodeSubject(o.NodeName)},
	}
}

// configs returns the configuration of requests for a certificate when there is
// none, and the configuration of all other requests. bootstrap reports that the
// certificate is still to be requested.
func (o *ClientOptions) configs() (requests, all *rest.Config, bootstrap bool, err error) {
	if o.BootstrapKubeconfig == "" || valid(o.Kubeconfig, time.Now()) {
		all, err = o.load(o.Kubeconfig, "--kubeconfig")
		return all, all, false, err
	}
	if requests, err = o.load(o.BootstrapKubeconfig, "--bootstrap-kubeconfig"); err != nil {
		return nil, nil, false, err
	}
	all = rest.AnonymousClientConfig(requests)
	return requests, all, true, o.write(requests)
}

// withoutCertificate returns the configuration of requests for a certificate before the
// first, and after one has expired, as it does while the machine sleeps or the API server
// is away: the bootstrap kubeconfig as it is now, because the token that it had may have
// expired, too. It returns what it is given if there is no such file.
func (o *ClientOptions) withoutCertificate(first *rest.Config) *rest.Config {
	if o.BootstrapKubeconfig == "" {
		return first
	}
	bootstrap, err := o.load(o.BootstrapKubeconfig, "--bootstrap-kubeconfig")
	if err != nil {
		klog.Background().Error(err, "There is no valid client certificate, and nothing new to request one with")
		return first
	}
	return bootstrap
}

func (o *ClientOptions) load(path, flag string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", flag, path, err)
	}
	config.UserAgent = o.UserAgent
	return config, nil
}

// write writes a kubeconfig for the API server of requests and the newest client
// certificate.
func (o *ClientOptions) write(requests *rest.Config) error {
	const cluster, user, name = "default-cluster", "default-auth", "default-context"
	current := newest(clientName, o.Directory)
	api := &clientcmdapi.Cluster{
		Server: requests.Host, TLSServerName: requests.ServerName, InsecureSkipTLSVerify: requests.Insecure,
		CertificateAuthority: requests.CAFile,
	}
	if requests.CAFile == "" {
		api.CertificateAuthorityData = requests.CAData
	}
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: api},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificate: current, ClientKey: current}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: cluster, AuthInfo: user, Namespace: "default"}},
		CurrentContext: name,
	}, o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("write --kubeconfig=%s: %w", o.Kubeconfig, err)
	}
	return nil
}

// valid reports whether a kubeconfig exists and has credentials that have not
// expired.
func valid(kubeconfig string, now time.Time) bool {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return false
	}
	if config.CertFile == "" && len(config.CertData) == 0 {
		return config.BearerToken != "" || config.BearerTokenFile != "" || config.ExecProvider != nil || config.AuthProvider != nil || config.Username != ""
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return false
	}
	chain, err := cert.ParseCertsPEM(config.CertData)
	if err != nil {
		return false
	}
	for _, c := range chain {
		if now.After(c.NotAfter) {
			return false
		}
	}
	_, err = tls.X509KeyPair(config.CertData, config.KeyData)
	return err == nil
}

// Bootstrap requests a client certificate unless the options have a valid
// kubeconfig, and then writes one. It blocks until the certificate is issued or
// ctx ends. The certificate is not renewed.
func Bootstrap(ctx context.Context, o *ClientOptions) error {
	if valid(o.Kubeconfig, time.Now()) {
		return nil
	}
	requests, err := o.load(o.BootstrapKubeconfig, "--bootstrap-kubeconfig")
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.Kubeconfig); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--kubeconfig=%s: %w", o.Kubeconfig, err)
	}
	if err := dropDamaged(clientName, o.Directory); err != nil {
		return err
	}
	request := o.request()
	request.ClientsetFn = func(*tls.Certificate) (kubernetes.Interface, error) { return kubernetes.NewForConfig(requests) }
	r, err := newRenewed(clientName, o.Directory, "", "", request)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Requesting a client certificate", "bootstrapKubeconfig", o.BootstrapKubeconfig)
	r.manager.Start()
	defer r.manager.Stop()
	if _, err := r.Wait(ctx); err != nil {
		return err
	}
	return o.write(requests)
}
