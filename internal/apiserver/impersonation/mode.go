package impersonation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// mode is a way to be allowed to speak for others. A constrained one asks
// twice: for the verb impersonate-on:MODE:VERB on what the request is about,
// and for impersonate:MODE on who is wanted.
type mode string

const (
	// associatedNode is for service accounts that are the node their token is
	// bound to.
	associatedNode mode = "associated-node"
	arbitraryNode  mode = "arbitrary-node"
	serviceAccount mode = "serviceaccount"
	// userInfo is for users that are neither node nor service account. It
	// alone lets the sender choose uid, groups and extra fields.
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

// serves says whether the mode is for users like the wanted one.
func (m mode) serves(wanted *user.DefaultInfo, sender user.Info) bool {
	node, isNode := nodeOf(wanted.Name)
	_, _, isAccount := accountOf(wanted.Name)
	nameAlone := wanted.UID == "" && len(wanted.Groups) == 0 && len(wanted.Extra) == 0
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

// asker is the sender as authorizers see it. Which node a service account's
// token is bound to was looked at already, so that decisions are the same for
// all its pods: they see the keys of its extra fields only.
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

// identity is who the wanted user turns out to be: nodes and service accounts
// are in the groups that they always are in.
func (m mode) identity(wanted *user.DefaultInfo) Identity {
	u := *wanted
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

// withAuthenticationGroup adds the group that says whether a user is known,
// unless one of the two was asked for.
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
	node, ok = strings.CutPrefix(name, "system:node:")
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}
