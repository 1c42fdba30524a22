package abac

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func read(t *testing.T, content string) (*Authorizer, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path)
}

func versioned(spec string) string {
	return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":` + spec + "}\n"
}

func TestPolicies(t *testing.T) {
	resource := func(verb, group, resource, namespace string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, APIGroup: group, Resource: resource, Namespace: namespace, ResourceRequest: true}
	}
	path := func(verb, path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, Path: path}
	}
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"dev", user.AllAuthenticated}}
	nobody := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	for name, test := range map[string]struct {
		policies string
		who      user.Info
		what     authorizer.AttributesRecord
		want     bool
	}{
		"everything":             {versioned(`{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}`), alice, resource("delete", "apps", "deployments", "x"), true},
		"another user":           {versioned(`{"user":"bob","namespace":"*","resource":"*","apiGroup":"*"}`), alice, resource("get", "", "pods", "x"), false},
		"group":                  {versioned(`{"group":"dev","namespace":"*","resource":"*","apiGroup":"*"}`), alice, resource("get", "", "pods", "x"), true},
		"user of another group":  {versioned(`{"user":"alice","group":"ops","namespace":"*","resource":"*","apiGroup":"*"}`), alice, resource("get", "", "pods", "x"), false},
		"no subject":             {versioned(`{"namespace":"*","resource":"*","apiGroup":"*"}`), alice, resource("get", "", "pods", "x"), false},
		"all users":              {versioned(`{"user":"*","namespace":"*","resource":"*","apiGroup":"*"}`), alice, resource("get", "", "pods", "x"), true},
		"all users but unknown":  {versioned(`{"user":"*","namespace":"*","resource":"*","apiGroup":"*"}`), nobody, resource("get", "", "pods", "x"), false},
		"reads":                  {versioned(`{"user":"alice","namespace":"x","resource":"pods","readonly":true}`), alice, resource("watch", "", "pods", "x"), true},
		"writes what is read":    {versioned(`{"user":"alice","namespace":"x","resource":"pods","readonly":true}`), alice, resource("update", "", "pods", "x"), false},
		"another namespace":      {versioned(`{"user":"alice","namespace":"x","resource":"pods"}`), alice, resource("get", "", "pods", "y"), false},
		"another API group":      {versioned(`{"user":"alice","namespace":"x","resource":"pods"}`), alice, resource("get", "metrics.k8s.io", "pods", "x"), false},
		"path":                   {versioned(`{"group":"system:unauthenticated","nonResourcePath":"/version","readonly":true}`), nobody, path("get", "/version"), true},
		"below a path":           {versioned(`{"user":"alice","nonResourcePath":"/apis/*"}`), alice, path("post", "/apis/apps"), true},
		"another path":           {versioned(`{"user":"alice","nonResourcePath":"/apis/*"}`), alice, path("get", "/api"), false},
		"resources are no paths": {versioned(`{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}`), alice, path("get", "/api"), false},
		"no version":             {`{"user":"alice"}`, alice, resource("delete", "apps", "deployments", "x"), true},
		"no version, paths":      {`{"user":"alice"}`, alice, path("get", "/api"), true},
		"no version, a resource": {`{"resource":"pods","readonly":true}`, alice, resource("list", "", "pods", "x"), true},
		"the second line":        {"# a comment\n\n" + versioned(`{"user":"bob"}`) + `{"user":"alice"}`, alice, path("get", "/api"), true},
	} {
		t.Run(name, func(t *testing.T) {
			z, err := read(t, test.policies)
			if err != nil {
				t.Fatal(err)
			}
			test.what.User = test.who
			want, wantReason := authorizer.DecisionNoOpinion, "No policy matched."
			if test.want {
				want, wantReason = authorizer.DecisionAllow, ""
			}
			if got, reason, err := z.Authorize(t.Context(), test.what); got != want || reason != wantReason || err != nil {
				t.Errorf("%v %q %v, want %v", got, reason, err, want)
			}
		})
	}
}

func TestRules(t *testing.T) {
	z, err := read(t, versioned(`{"user":"alice","namespace":"x","resource":"pods","readonly":true}`)+versioned(`{"group":"dev","nonResourcePath":"/version"}`)+versioned(`{"user":"bob","namespace":"*","resource":"*"}`))
	if err != nil {
		t.Fatal(err)
	}
	resources, paths, incomplete, err := z.RulesFor(t.Context(), &user.DefaultInfo{Name: "alice", Groups: []string{"dev"}}, "x")
	if len(resources) != 1 || strings.Join(resources[0].GetVerbs(), " ") != "get list watch" || len(paths) != 1 || paths[0].GetVerbs()[0] != "*" || incomplete || err != nil {
		t.Errorf("%v %v %v %v", resources, paths, incomplete, err)
	}
}

func TestInvalidLines(t *testing.T) {
	_, err := read(t, "{}\nnonsense\n"+`{"apiVersion":"abac.authorization.kubernetes.io/v7","kind":"Policy"}`+"\n"+`{"kind":"Role"}`)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"line 2", "line 3", "v7", "line 4", "Role"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nnames no %s", err, want)
		}
	}
}
