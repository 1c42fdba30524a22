// Package impersonation decides who may speak for whom: by the modes of
// constrained impersonation (KEP-5284) or by the verb impersonate alone.
//
//	Impersonate-* headers ─Wanted─► who is wanted ─Gate.Check─► who the request is of, and by which verb
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

// Wanted reads who a request wants to be, and takes all headers that say so
// away, however they are written: servers behind this one would take them for
// what this one allowed. It returns nil for a request that wants to be nobody else, and
// BadRequest for one that leaves out the name.
func Wanted(h http.Header) (*user.DefaultInfo, error) {
	if !asked(h) {
		return nil, nil
	}
	wanted := &user.DefaultInfo{
		Name:   h.Get(authenticationv1.ImpersonateUserHeader),
		UID:    h.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: h[authenticationv1.ImpersonateGroupHeader],
	}
	for header, values := range h {
		escaped, ok := strings.CutPrefix(header, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok || len(values) == 0 {
			continue
		}
		if wanted.Extra == nil {
			wanted.Extra = map[string][]string{}
		}
		key := unescape(strings.ToLower(escaped))
		wanted.Extra[key] = append(wanted.Extra[key], values...)
	}
	nobody := wanted.Name == ""
	if nobody && (wanted.UID != "" || len(wanted.Groups) > 0 || len(wanted.Extra) > 0) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", wanted))
	}
	(&headers.Set{Prefixes: []string{headerPrefix}}).Strip(h)
	if nobody {
		return nil, nil
	}
	return wanted, nil
}

func asked(h http.Header) bool {
	for header := range h {
		if headers.Begins(header, headerPrefix) {
			return true
		}
	}
	return false
}

// unescape reads a key of extra fields; one that is not escaped well is itself.
func unescape(key string) string {
	if plain, err := url.PathUnescape(key); err == nil {
		return plain
	}
	return key
}
