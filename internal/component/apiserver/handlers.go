package apiserver

import (
	"net/http"

	"github.com/coracle-io/coracle/internal/apiserver/authn/serviceaccount"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
)

// handlers are what the API server answers besides the API.
func (a *Server) handlers(issuer *serviceaccount.Issuer, documents http.Handler, gates *feature.Set) (map[string]http.Handler, error) {
	external, err := a.flags.external()
	if err != nil {
		return nil, err
	}
	handlers := map[string]http.Handler{
		"/openapi/v2":     documents,
		"/openapi/v3":     documents,
		"/openapi/v3/":    documents,
		"/openid/v1/jwks": document("application/jwk-set+json", issuer.KeysDocument),
		"/.well-known/openid-configuration": document("application/json", func() ([]byte, error) {
			return issuer.ConfigurationDocument(a.flags.ServiceAccounts.JWKSURI, external)
		}),
	}
	if a.flags.Profiling {
		base.AddProfiles(handlers)
	}
	base.AddZPages(handlers, "apiserver", base.FlagValuesOf(a.flags.AddFlags), gates, "/healthz", "/livez", "/metrics", "/readyz", "/version")
	return handlers, nil
}

// document serves a small document that is made anew for each request.
func document(contentType string, read func() ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		raw, err := read()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(raw) // a client that has gone needs no answer
	})
}
