package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/pki"
)

// CompleteAccess sets the parts of Access that are nil, from the configuration. A
// kubelet without a certificate makes one for itself and keeps it in
// CertDirectory. api is nil for a kubelet without an API server.
func (config *Config) CompleteAccess(api kubernetes.Interface, ips []net.IP) (err error) {
	a, c := &config.Access, config.Configuration
	if a.GetCertificate == nil {
		if a.GetCertificate, err = certificate(c, a.CertDirectory, config.NodeName, ips); err != nil {
			return err
		}
	}
	if a.ClientCAs == nil {
		if a.ClientCAs, err = authorities(c.Authentication.X509.ClientCAFile); err != nil {
			return err
		}
	}
	if a.Authenticator == nil {
		if a.Authenticator, err = authenticate(&c.Authentication, api, a.ClientCAs); err != nil {
			return err
		}
	}
	if a.Authorizer == nil {
		a.Authorizer, err = authorize(&c.Authorization, api)
	}
	return err
}

// TLS returns the TLS parameters of the configuration, without a certificate.
func TLS(c *kubeletconfig.KubeletConfiguration) (*tls.Config, error) {
	secured := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	var err error
	if c.TLSMinVersion != "" {
		if secured.MinVersion, err = cliflag.TLSVersion(c.TLSMinVersion); err != nil {
			return nil, fmt.Errorf("tlsMinVersion (--tls-min-version): %w", err)
		}
	}
	if len(c.TLSCipherSuites) > 0 {
		if secured.CipherSuites, err = cliflag.TLSCipherSuites(c.TLSCipherSuites); err != nil {
			return nil, fmt.Errorf("tlsCipherSuites (--tls-cipher-suites): %w", err)
		}
	}
	if secured.CurvePreferences, err = cliflag.TLSCurvePreferences(c.TLSCurvePreferences); err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	return secured, nil
}

// certificate returns the certificate that the configuration names, which is
// reloaded when its file changes, or a self-signed one, which is kept in
// directory unless that is empty.
func certificate(c *kubeletconfig.KubeletConfiguration, directory, hostname string, ips []net.IP) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if c.TLSCertFile != "" {
		follow, err := pki.ReloadingCertificate(c.TLSCertFile, c.TLSPrivateKeyFile)
		if err != nil {
			return nil, fmt.Errorf("load the kubelet's certificate: %w", err)
		}
		return follow, nil
	}
	if directory != "" {
		if pair, err := tls.LoadX509KeyPair(filepath.Join(directory, selfSigned+".crt"), filepath.Join(directory, selfSigned+".key")); err == nil && time.Now().Before(pair.Leaf.NotAfter) {
			return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
		}
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(hostname, ips, nil)
	if err != nil {
		return nil, fmt.Errorf("make the kubelet's self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err == nil && directory != "" {
		err = errors.Join(
			cert.WriteCert(filepath.Join(directory, selfSigned+".crt"), certPEM),
			keyutil.WriteKey(filepath.Join(directory, selfSigned+".key"), keyPEM),
		)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the kubelet's self-signed certificate (--cert-dir): %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}

// selfSigned is the name of the files of the self-signed certificate.
const selfSigned = "kubelet"

// authorities returns the current authorities of client certificates in a file;
// nil if file is empty.
func authorities(file string) (func() *x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	follow, err := pki.ReloadingAuthority(file)
	if err != nil {
		return nil, fmt.Errorf("read clientCAFile: %w", err)
	}
	return follow, nil
}

// authenticate accepts client certificates and, with an API server, tokens.
func authenticate(c *kubeletconfig.KubeletAuthentication, api kubernetes.Interface, clientCAs func() *x509.CertPool) (authenticator.Request, error) {
	var all []authenticator.Request
	if clientCAs != nil {
		all = append(all, requestx509.NewDynamic(func() (x509.VerifyOptions, bool) {
			o := requestx509.DefaultVerifyOptions()
			o.Roots = clientCAs()
			return o, o.Roots != nil
		}, requestx509.CommonNameUserConversion))
	}
	delegating := authenticatorfactory.DelegatingAuthenticatorConfig{
		CacheTTL: c.Webhook.CacheTTL.Duration, TokenAccessReviewTimeout: 10 * time.Second, WebhookRetryBackoff: client.ReviewBackoff(),
	}
	if *c.Anonymous.Enabled {
		delegating.Anonymous = &apiserverconfig.AnonymousAuthConfig{Enabled: true}
	}
	if *c.Webhook.Enabled && api != nil {
		delegating.TokenAccessReviewClient = api.AuthenticationV1()
	}
	if delegating.Anonymous != nil || delegating.TokenAccessReviewClient != nil {
		request, _, err := delegating.New()
		if err != nil {
			return nil, err
		}
		all = append(all, request)
	}
	if len(all) == 0 {
		return nil, errors.New("no client could authenticate to the kubelet: set authentication.x509.clientCAFile, authentication.webhook or authentication.anonymous")
	}
	return union.New(all...), nil
}

// authorize returns an authorizer for the mode: AlwaysAllow, or Webhook, which
// asks the API server.
func authorize(c *kubeletconfig.KubeletAuthorization, api kubernetes.Interface) (authorizer.Authorizer, error) {
	switch {
	case c.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case c.Mode != kubeletconfig.KubeletAuthorizationModeWebhook:
		return nil, fmt.Errorf("authorization.mode %q is not known (--authorization-mode): use Webhook or AlwaysAllow", c.Mode)
	case api == nil:
		return nil, errors.New("no request could be authorized: authorization.mode Webhook asks an API server (--kubeconfig); without one set enableServer: false, or AlwaysAllow to let in every authenticated client")
	}
	delegating := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: api.AuthorizationV1(),
		AllowCacheTTL:             c.Webhook.CacheAuthorizedTTL.Duration, DenyCacheTTL: c.Webhook.CacheUnauthorizedTTL.Duration,
		WebhookRetryBackoff: client.ReviewBackoff(),
	}
	return delegating.New()
}
