package impersonation_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/impersonation"
)

// rights are the permissions of an authorizer, as "verb
// resource[.group][/subresource] [name]".
type rights []string

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	resource := a.GetResource()
	if a.GetAPIGroup() != "" {
		resource += "." + a.GetAPIGroup()
	}
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	right := strings.TrimSpace(a.GetVerb() + " " + resource + " " + a.GetName())
	if slices.Contains(r, right) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "needs " + right, nil
}

// The sender lists pods in every case.
func TestCheck(t *testing.T) {
	agent := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:agent", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}}}
	for _, test := range []struct {
		name       string
		sender     user.Info
		rights     rights
		requested  user.DefaultInfo
		groups     []string
		constraint string
		refusal    string
	}{{
		name: "the verb impersonate alone", rights: rights{"impersonate users ann"},
		requested: user.DefaultInfo{Name: "ann"}, groups: []string{"system:authenticated"},
	}, {
		name: "a user for one verb", rights: rights{"impersonate:user-info users.authentication.k8s.io ann", "impersonate-on:user-info:list pods"},
		requested: user.DefaultInfo{Name: "ann"}, groups: []string{"system:authenticated"}, constraint: "impersonate:user-info",
	}, {
		name: "a user for another verb", rights: rights{"impersonate:user-info users.authentication.k8s.io ann", "impersonate-on:user-info:get pods"},
		requested: user.DefaultInfo{Name: "ann"}, refusal: "needs impersonate-on:user-info:list pods",
	}, {
		name: "another user", rights: rights{"impersonate:user-info users.authentication.k8s.io bob", "impersonate-on:user-info:list pods"},
		requested: user.DefaultInfo{Name: "ann"}, refusal: "needs impersonate:user-info users.authentication.k8s.io ann",
	}, {
		name:      "all that a user has",
		rights:    rights{"impersonate-on:user-info:list pods", "impersonate:user-info users.authentication.k8s.io ann", "impersonate:user-info groups.authentication.k8s.io g", "impersonate:user-info uids.authentication.k8s.io 7", "impersonate:user-info userextras.authentication.k8s.io/acme.io/k v"},
		requested: user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"acme.io/k": {"v"}}}, groups: []string{"g", "system:authenticated"}, constraint: "impersonate:user-info",
	}, {
		name: "many groups at once", rights: rights{"impersonate-on:user-info:list pods", "impersonate:user-info users.authentication.k8s.io ann", "impersonate:user-info groups.authentication.k8s.io *"},
		requested: user.DefaultInfo{Name: "ann", Groups: []string{"a", "b", "c", "d"}}, groups: []string{"a", "b", "c", "d", "system:authenticated"}, constraint: "impersonate:user-info",
	}, {
		name: "masters are never constrained", rights: rights{"impersonate-on:user-info:list pods", "impersonate:user-info users.authentication.k8s.io ann", "impersonate:user-info groups.authentication.k8s.io system:masters"},
		requested: user.DefaultInfo{Name: "ann", Groups: []string{"system:masters"}}, refusal: "impersonating the system:masters group is not allowed",
	}, {
		name: "masters by the verb alone", rights: rights{"impersonate users ann", "impersonate groups system:masters"},
		requested: user.DefaultInfo{Name: "ann", Groups: []string{"system:masters"}}, groups: []string{"system:masters", "system:authenticated"},
	}, {
		name: "nobody in particular", rights: rights{"impersonate users system:anonymous"},
		requested: user.DefaultInfo{Name: "system:anonymous"}, groups: []string{"system:unauthenticated"},
	}, {
		name: "a service account", rights: rights{"impersonate-on:serviceaccount:list pods", "impersonate:serviceaccount serviceaccounts.authentication.k8s.io sa"},
		requested: user.DefaultInfo{Name: "system:serviceaccount:ns:sa"}, groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}, constraint: "impersonate:serviceaccount",
	}, {
		name: "a service account with groups of choice", rights: rights{"impersonate-on:serviceaccount:list pods", "impersonate:serviceaccount serviceaccounts.authentication.k8s.io sa"},
		requested: user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Groups: []string{"g"}}, refusal: "needs impersonate serviceaccounts sa",
	}, {
		name: "a node", rights: rights{"impersonate-on:arbitrary-node:list pods", "impersonate:arbitrary-node nodes.authentication.k8s.io n2"},
		requested: user.DefaultInfo{Name: "system:node:n2"}, groups: []string{"system:nodes", "system:authenticated"}, constraint: "impersonate:arbitrary-node",
	}, {
		name: "the node of the token", sender: agent, rights: rights{"impersonate-on:associated-node:list pods", "impersonate:associated-node nodes.authentication.k8s.io *"},
		requested: user.DefaultInfo{Name: "system:node:n1"}, groups: []string{"system:nodes", "system:authenticated"}, constraint: "impersonate:associated-node",
	}, {
		name: "a node that is not the token's", sender: agent, rights: rights{"impersonate-on:associated-node:list pods", "impersonate:associated-node nodes.authentication.k8s.io *"},
		requested: user.DefaultInfo{Name: "system:node:n2"}, refusal: "needs impersonate-on:arbitrary-node:list pods",
	}, {
		name: "a node by the verb alone", rights: rights{"impersonate users system:node:n2"},
		requested: user.DefaultInfo{Name: "system:node:n2"}, groups: []string{"system:authenticated"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			if test.sender == nil {
				test.sender = &user.DefaultInfo{Name: "sender"}
			}
			list := &authorizer.AttributesRecord{User: test.sender, Verb: "list", Resource: "pods", ResourceRequest: true}
			got, err := impersonation.NewImpersonator(test.rights, true).Check(t.Context(), &test.requested, list)
			if test.refusal != "" {
				if err == nil || !strings.HasSuffix(err.Error(), ": "+test.refusal) {
					t.Errorf("got %v, %v; want it refused because it %s", got, err, test.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.groups, got.User.GetGroups()); diff != "" || got.User.GetName() != test.requested.Name || got.Constraint != test.constraint {
				t.Errorf("%s by %q, groups (-want +got):\n%s", got.User.GetName(), got.Constraint, diff)
			}
		})
	}
}

// The error is the error of the mode that last allowed the sender to impersonate.
func TestErrorOfTheLastMode(t *testing.T) {
	list := &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "sender"}, Verb: "list", Resource: "pods", ResourceRequest: true}
	impersonator := impersonation.NewImpersonator(rights{"impersonate users ann"}, true)
	refusal := func() string {
		_, err := impersonator.Check(t.Context(), &user.DefaultInfo{Name: "bob"}, list)
		return err.Error()
	}
	if got, want := refusal(), `pods is forbidden: User "sender" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope: needs impersonate-on:user-info:list pods`; got != want {
		t.Errorf("before: %s\nwant    %s", got, want)
	}
	if _, err := impersonator.Check(t.Context(), &user.DefaultInfo{Name: "ann"}, list); err != nil {
		t.Fatal(err)
	}
	if got, want := refusal(), `users "bob" is forbidden: User "sender" cannot impersonate resource "users" in API group "" at the cluster scope: needs impersonate users bob`; got != want {
		t.Errorf("after: %s\nwant   %s", got, want)
	}
}

// Without the feature, only the verb impersonate counts.
func TestUnconstrained(t *testing.T) {
	list := &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "sender"}, Verb: "list", Resource: "pods", ResourceRequest: true}
	impersonator := impersonation.NewImpersonator(rights{"impersonate:user-info users.authentication.k8s.io ann", "impersonate-on:user-info:list pods"}, false)
	if got, err := impersonator.Check(t.Context(), &user.DefaultInfo{Name: "ann"}, list); err == nil {
		t.Errorf("got %v", got)
	}
}

func TestRequested(t *testing.T) {
	h := http.Header{}
	if requested, err := impersonation.Requested(h); requested != nil || err != nil {
		t.Errorf("no headers: %v, %v", requested, err)
	}
	h.Set("Impersonate-Group", "g")
	if _, err := impersonation.Requested(h); err == nil || !strings.HasSuffix(err.Error(), "without impersonating a user name") {
		t.Errorf("a group alone: %v", err)
	}
	h.Set("Impersonate-User", "ann")
	h.Set("Impersonate-Uid", "7")
	h.Set("Impersonate-Extra-Acme.com%2fProject", "p")
	h.Set("Accept", "*/*")
	got, err := impersonation.Requested(h)
	if err != nil {
		t.Fatal(err)
	}
	want := &user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"acme.com/project": {"p"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(h) != 1 {
		t.Errorf("remaining headers: %v", h)
	}
}

// Headers that this server does not read are removed, too, since servers behind
// it may read them.
func TestOtherSpellingsAreRemoved(t *testing.T) {
	h := http.Header{
		"Impersonate_user": {"root"}, "Impersonate_Extra_a": {"b"}, "impersonate-user": {"root"}, "Impersonate-User": {""}, "Impersonate-Else": {"x"},
		"Impersonated": {"x"}, "Accept": {"*/*"},
	}
	if requested, err := impersonation.Requested(h); requested != nil || err != nil {
		t.Errorf("%v, %v", requested, err)
	}
	if len(h) != 2 {
		t.Errorf("remaining headers: %v", h)
	}
}
