// Package impersonation authorizes impersonation: by the modes of
// constrained impersonation (KEP-5284) or by the verb impersonate alone.
//
//	Impersonate-* headers ─Requested─► requested user ─Impersonator.Check─► identity of the request
package impersonation

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/headers"
)

const headerPrefix = "Impersonate-"

// Requested returns the user that a request impersonates, and removes all
// impersonation headers in any spelling, since servers behind this one would
// trust them. It returns nil if there are none, and BadRequest if the user name
// is missing.
func Requested(h http.Header) (*user.DefaultInfo, error) {
	if !hasHeaders(h) {
		return nil, nil
	}
	requested := &user.DefaultInfo{
		Name:   h.Get(authenticationv1.ImpersonateUserHeader),
		UID:    h.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: h[authenticationv1.ImpersonateGroupHeader],
	}
	for header, values := range h {
		escaped, ok := strings.CutPrefix(header, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok || len(values) == 0 {
			continue
		}
		if requested.Extra == nil {
			requested.Extra = map[string][]string{}
		}
		key := unescape(strings.ToLower(escaped))
		requested.Extra[key] = append(requested.Extra[key], values...)
	}
	unnamed := requested.Name == ""
	if unnamed && (requested.UID != "" || len(requested.Groups) > 0 || len(requested.Extra) > 0) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", requested))
	}
	(&headers.Set{Prefixes: []string{headerPrefix}}).Strip(h)
	if unnamed {
		return nil, nil
	}
	return requested, nil
}

func hasHeaders(h http.Header) bool {
	for header := range h {
		if headers.Begins(header, headerPrefix) {
			return true
		}
	}
	return false
}

// unescape decodes a key of extra fields. It returns an invalid encoding as it
// is.
func unescape(key string) string {
	if plain, err := url.PathUnescape(key); err == nil {
		return plain
	}
	return key
}
