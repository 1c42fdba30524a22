package base

import (
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/httpserver"
)

// access authenticates and authorizes requests to a component's server. It
// verifies client certificates itself and delegates tokens and authorization to
// the API server (TokenReview and SubjectAccessReview, cached for ten seconds).
type access struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
	open          []string
	// clients verifies client certificates.
	clients x509request.VerifyOptionFunc
	// published watches the authority that the API server publishes; nil if
	// the authority is configured.
	published *dynamiccertificates.ConfigMapCAController
}

const rememberAccess = 10 * time.Second

func (s *Serving) newAccess(_ context.Context, own *client.Client) (*access, error) {
	a := &access{open: s.AlwaysAllowPaths}
	verify := s.ClientCA
	if s.ClientCAFile != "" {
		pool, err := ReadAuthorities("client-ca-file", s.ClientCAFile)
		if err != nil {
			return nil, err
		}
		verify = func() (x509.VerifyOptions, bool) {
			o := x509request.DefaultVerifyOptions()
			o.Roots = pool
			return o, true
		}
	}
	if verify == nil {
		var err error
		if a.published, err = dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca",
			metav1.NamespaceSystem, "extension-apiserver-authentication", "client-ca-file", own.Kubernetes); err != nil {
			return nil, err
		}
		verify = a.published.VerifyOptions
	}
	tokens, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserverconfig.AnonymousAuthConfig{Enabled: true}, CacheTTL: rememberAccess,
		TokenAccessReviewClient: own.Kubernetes.AuthenticationV1(), TokenAccessReviewTimeout: 10 * time.Second,
		WebhookRetryBackoff: client.ReviewBackoff(),
	}.New()
	if err != nil {
		return nil, err
	}
	a.clients = verify
	a.authenticator = union.New(x509request.NewDynamic(verify, x509request.CommonNameUserConversion), tokens)
	a.authorizer, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: own.Kubernetes.AuthorizationV1(), AllowCacheTTL: rememberAccess, DenyCacheTTL: rememberAccess,
		WebhookRetryBackoff: client.ReviewBackoff(),
	}.New()
	return a, err
}

// run watches the published authority until ctx ends.
func (a *access) run(ctx context.Context) error {
	if a.published != nil {
		a.published.Run(ctx, 1)
	}
	<-ctx.Done()
	return nil
}

// guard serves requests that their user is authorized to make.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(a.open, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		who, ok, err := a.authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		verb := "get"
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			verb = strings.ToLower(r.Method)
		}
		decision, _, err := a.authorizer.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: verb, Path: r.URL.Path})
		if err != nil {
			klog.FromContext(r.Context()).Error(err, "Cannot ask the API server what a caller may do", "user", who.User.GetName(), "path", r.URL.Path)
			http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			return
		}
		if decision != authorizer.DecisionAllow {
			http.Error(w, "forbidden: User \""+who.User.GetName()+"\" cannot "+verb+" path \""+r.URL.Path+"\"", http.StatusForbidden)
			return
		}
		if who.User.GetName() != user.Anonymous && !httpserver.MarkAuthenticated(r.Context(), who.User) {
			w.Header().Set("Connection", "close")
			http.Error(w, httpserver.TooManyConnections, http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// verified returns the authorities of verify options, or nil.
func verified(verify x509request.VerifyOptionFunc) func() *x509.CertPool {
	return func() *x509.CertPool {
		options, _ := verify()
		return options.Roots
	}
}
