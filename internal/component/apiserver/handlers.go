package apiserver

import (
	"net/http"
	"os"

	"github.com/coracle-io/coracle/internal/apiserver/authn/serviceaccount"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
)

// handlers returns the handlers of non-resource paths: OpenAPI, token keys,
// profiles, logs and z-pages.
func (a *Server) handlers(issuer *serviceaccount.Issuer, documents http.Handler, gates *feature.Set) (map[string]http.Handler, error) {
	external, err := a.options.external()
	if err != nil {
		return nil, err
	}
	handlers := map[string]http.Handler{
		"/openapi/v2":     documents,
		"/openapi/v3":     documents,
		"/openapi/v3/":    documents,
		"/openid/v1/jwks": document("application/jwk-set+json", issuer.KeysDocument),
		"/.well-known/openid-configuration": document("application/json", func() ([]byte, error) {
			return issuer.ConfigurationDocument(a.options.ServiceAccounts.JWKSURI, external)
		}),
	}
	if a.options.Profiling.Enabled {
		base.AddProfiles(handlers)
	}
	if a.options.Logs {
		handlers["/logs"] = http.RedirectHandler("/logs/", http.StatusMovedPermanently)
		handlers["/logs/"] = logFiles("/var/log")
	}
	base.AddZPages(handlers, "apiserver", base.FlagValuesOf(a.options.AddFlags), gates, "/healthz", "/livez", "/metrics", "/readyz", "/version")
	return handlers, nil
}

// logFiles serves the files in and beneath a directory at /logs/. It follows no links
// out of the directory.
func logFiles(directory string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
			return
		}
		root, err := os.OpenRoot(directory)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = root.Close() }()
		http.StripPrefix("/logs", http.FileServerFS(root.FS())).ServeHTTP(w, r)
	})
}

// document serves a small document, which it reads for each request.
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
