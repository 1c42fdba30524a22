package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/pki"
)

// Default fills in, where c does not say, by which certificate the server is
// known and who may ask what. client is nil for a kubelet without API server.
func (c *Config) Default(configuration *kubeletconfig.KubeletConfiguration, client kubernetes.Interface, hostname string, ips []net.IP) (err error) {
	if c.GetCertificate == nil {
		if c.GetCertificate, err = certificate(configuration, hostname, ips); err != nil {
			return err
		}
	}
	if c.ClientCAs == nil {
		if c.ClientCAs, err = authorities(configuration.Authentication.X509.ClientCAFile); err != nil {
			return err
		}
	}
	if c.Authenticator == nil {
		if c.Authenticator, err = authenticate(&configuration.Authentication, client, c.ClientCAs); err != nil {
			return err
		}
	}
	if c.Authorizer == nil {
		c.Authorizer, err = authorize(&configuration.Authorization, client)
	}
	return err
}

// certificate is the one that the configuration names, or one that is signed
// by itself.
func certificate(c *kubeletconfig.KubeletConfiguration, hostname string, ips []net.IP) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if c.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSPrivateKeyFile)
		if err != nil {
			return nil, fmt.Errorf("load the kubelet's certificate: %w", err)
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(hostname, ips, nil)
	if err != nil {
		return nil, fmt.Errorf("make the kubelet's self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}

// authorities are those of client certificates in a file, as it is now; nil for
// none.
func authorities(file string) (func() *x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	follow, err := pki.FollowAuthority(file)
	if err != nil {
		return nil, fmt.Errorf("read clientCAFile: %w", err)
	}
	return follow, nil
}

// authenticate knows client certificates and, by asking the API server, tokens.
func authenticate(c *kubeletconfig.KubeletAuthentication, client kubernetes.Interface, clientCAs func() *x509.CertPool) (authenticator.Request, error) {
	var all []authenticator.Request
	if clientCAs != nil {
		all = append(all, requestx509.NewDynamic(func() (x509.VerifyOptions, bool) {
			o := requestx509.DefaultVerifyOptions()
			o.Roots = clientCAs()
			return o, o.Roots != nil
		}, requestx509.CommonNameUserConversion))
	}
	delegating := authenticatorfactory.DelegatingAuthenticatorConfig{
		CacheTTL: c.Webhook.CacheTTL.Duration, TokenAccessReviewTimeout: 10 * time.Second, WebhookRetryBackoff: options.DefaultAuthWebhookRetryBackoff(),
	}
	if *c.Anonymous.Enabled {
		delegating.Anonymous = &apiserverconfig.AnonymousAuthConfig{Enabled: true}
	}
	if *c.Webhook.Enabled && client != nil {
		delegating.TokenAccessReviewClient = client.AuthenticationV1()
	}
	if delegating.Anonymous != nil || delegating.TokenAccessReviewClient != nil {
		request, _, err := delegating.New()
		if err != nil {
			return nil, err
		}
		all = append(all, request)
	}
	if len(all) == 0 {
		return nil, errors.New("nobody could authenticate to the kubelet: set authentication.x509.clientCAFile, authentication.webhook or authentication.anonymous")
	}
	return union.New(all...), nil
}

// authorize lets everybody do everything or asks the API server, by the mode.
func authorize(c *kubeletconfig.KubeletAuthorization, client kubernetes.Interface) (authorizer.Authorizer, error) {
	switch {
	case c.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case c.Mode != kubeletconfig.KubeletAuthorizationModeWebhook:
		return nil, fmt.Errorf("authorization.mode %q is not known (--authorization-mode): use Webhook or AlwaysAllow", c.Mode)
	case client == nil:
		return nil, errors.New("nobody can be authorized: authorization.mode Webhook asks an API server (--kubeconfig); without one set enableServer: false, or AlwaysAllow to let in everybody who authenticates")
	}
	delegating := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             c.Webhook.CacheAuthorizedTTL.Duration, DenyCacheTTL: c.Webhook.CacheUnauthorizedTTL.Duration,
		WebhookRetryBackoff: options.DefaultAuthWebhookRetryBackoff(),
	}
	return delegating.New()
}
