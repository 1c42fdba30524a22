package impersonation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/pki"
)

// mode is a way to authorize impersonation. A constrained mode requires two
// permissions: the verb impersonate-on:MODE:VERB on the object of the request,
// and impersonate:MODE on the impersonated user.
type mode string

const (
	// associatedNode is for service accounts that impersonate the node that
	// their token is bound to.
	associatedNode mode = "associated-node"
	arbitraryNode  mode = "arbitrary-node"
	serviceAccount mode = "serviceaccount"
	// userInfo is for users that are neither nodes nor service accounts. Only
	// in this mode may the sender set the UID, groups and extra fields.
	userInfo mode = "user-info"
	// legacy is for every user and every request.
	legacy mode = ""
)

func (m mode) verb() string {
	if m == legacy {
		return "impersonate"
	}
	return "impersonate:" + string(m)
}

// serves reports whether the mode applies to the requested user.
func (m mode) serves(requested *user.DefaultInfo, sender user.Info) bool {
	node, isNode := nodeOf(requested.Name)
	_, _, isAccount := accountOf(requested.Name)
	nameAlone := requested.UID == "" && len(requested.Groups) == 0 && len(requested.Extra) == 0
	switch m {
	case associatedNode:
		_, _, fromAccount := accountOf(sender.GetName())
		bound := sender.GetExtra()[serviceaccount.NodeNameKey]
		return isNode && nameAlone && fromAccount && len(bound) == 1 && bound[0] == node
	case arbitraryNode:
		return isNode && nameAlone
	case serviceAccount:
		return isAccount && nameAlone
	case userInfo:
		return !isNode && !isAccount
	}
	return true
}

// asker returns the sender for the authorizer. In the mode associatedNode,
// serves has checked the node of the token, so the extra fields are reduced to
// their keys. Decisions are then the same for all pods of a service account.
func (m mode) asker(sender user.Info) user.Info {
	if m != associatedNode {
		return sender
	}
	return &user.DefaultInfo{
		Name:   sender.GetName(),
		UID:    sender.GetUID(),
		Groups: sender.GetGroups(),
		Extra:  map[string][]string{"authentication.kubernetes.io/associated-node-keys": sets.List(sets.KeySet(sender.GetExtra()))},
	}
}

// identity returns the identity of the requested user, with the groups that
// nodes and service accounts always have.
func (m mode) identity(requested *user.DefaultInfo) Identity {
	u := *requested
	if namespace, _, ok := accountOf(u.Name); ok && len(u.Groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	} else if _, ok := nodeOf(u.Name); ok && m != legacy {
		u.Groups = []string{user.NodesGroup}
	}
	u.Groups = withAuthenticationGroup(u.Name, u.Groups)
	if m == legacy {
		return Identity{User: &u}
	}
	return Identity{User: &u, Constraint: m.verb()}
}

// withAuthenticationGroup adds system:authenticated or system:unauthenticated
// unless one of them was requested.
func withAuthenticationGroup(name string, groups []string) []string {
	group := user.AllAuthenticated
	if name == user.Anonymous {
		group = user.AllUnauthenticated
	}
	if slices.Contains(groups, group) || slices.Contains(groups, user.AllUnauthenticated) {
		return groups
	}
	return append(slices.Clip(groups), group)
}

func accountOf(name string) (namespace, account string, ok bool) {
	namespace, account, err := serviceaccount.SplitUsername(name)
	return namespace, account, err == nil
}

func nodeOf(name string) (node string, ok bool) {
	node, ok = strings.CutPrefix(name, pki.NodePrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}
