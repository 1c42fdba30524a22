package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// impersonate lets a user who may speak for somebody else do so, by the
// Impersonate-User, -Group, -Uid and -Extra-* headers.
func (q *request) impersonate() error {
	wanted, needed, err := impersonation(q.http.Header)
	if err != nil || wanted == nil {
		return err
	}
	for i := range needed {
		a := &needed[i]
		a.User, a.Verb, a.ResourceRequest = q.user, "impersonate", true
		decision, reason, err := q.server.Authorizer.Authorize(q.ctx, a)
		if err != nil || decision != authorizer.DecisionAllow {
			return forbidden(a, reason)
		}
	}
	q.user = wanted
	q.audit.Impersonated(wanted)
	for name := range q.http.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			delete(q.http.Header, name)
		}
	}
	return nil
}

// impersonation reads the headers: who is wanted (nil for nobody) and what
// the sender must be allowed to impersonate for it.
func impersonation(h http.Header) (*user.DefaultInfo, []authorizer.AttributesRecord, error) {
	if !hasImpersonation(h) {
		return nil, nil, nil
	}
	name := h.Get(authenticationv1.ImpersonateUserHeader)
	groups := h[authenticationv1.ImpersonateGroupHeader]
	if name == "" {
		return nil, nil, apierrors.NewBadRequest("requested [" + impersonationHeaders(h) + "] without impersonating a user")
	}
	wanted := &user.DefaultInfo{Name: name, UID: h.Get(authenticationv1.ImpersonateUIDHeader), Extra: map[string][]string{}}
	var needed []authorizer.AttributesRecord
	if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
		needed = append(needed, authorizer.AttributesRecord{Resource: "serviceaccounts", APIVersion: "v1", Namespace: namespace, Name: account})
		if len(groups) == 0 {
			wanted.Groups = serviceaccount.MakeGroupNames(namespace)
		}
	} else {
		needed = append(needed, authorizer.AttributesRecord{Resource: "users", APIVersion: "v1", Name: name})
	}
	for _, g := range groups {
		needed = append(needed, authorizer.AttributesRecord{Resource: "groups", APIVersion: "v1", Name: g})
		wanted.Groups = append(wanted.Groups, g)
	}
	for header, values := range h {
		escaped, ok := strings.CutPrefix(header, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		key := unescape(strings.ToLower(escaped))
		for _, v := range values {
			needed = append(needed, authorizer.AttributesRecord{APIGroup: "authentication.k8s.io", APIVersion: "v1", Resource: "userextras", Subresource: key, Name: v})
		}
		wanted.Extra[key] = append(wanted.Extra[key], values...)
	}
	if wanted.UID != "" {
		needed = append(needed, authorizer.AttributesRecord{APIGroup: "authentication.k8s.io", APIVersion: "v1", Resource: "uids", Name: wanted.UID})
	}
	wanted.Groups = withAuthenticationGroup(name, wanted.Groups)
	return wanted, needed, nil
}

func hasImpersonation(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

func impersonationHeaders(h http.Header) string {
	var names []string
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// withAuthenticationGroup adds the group that says whether a user is known,
// unless one of the two was asked for.
func withAuthenticationGroup(name string, groups []string) []string {
	if name == user.Anonymous {
		if slices.Contains(groups, user.AllUnauthenticated) {
			return groups
		}
		return append(groups, user.AllUnauthenticated)
	}
	if slices.Contains(groups, user.AllAuthenticated) || slices.Contains(groups, user.AllUnauthenticated) {
		return groups
	}
	return append(groups, user.AllAuthenticated)
}

func unescape(key string) string {
	if plain, err := url.PathUnescape(key); err == nil {
		return plain
	}
	return key
}
