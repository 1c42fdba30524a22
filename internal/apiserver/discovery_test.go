package apiserver_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/feature"
)

// Discovery clients find the resources of the golden table, with aggregated
// discovery and piece by piece.
func TestDiscovery(t *testing.T) {
	s := apiservertest.Start(t)
	golden, err := os.ReadFile("../resource/all/testdata/api-resources.tsv")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(golden)), "\n")[1:]
	groupTable, err := os.ReadFile("../resource/all/testdata/api-groups.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var groupOrder []string
	for line := range strings.Lines(string(groupTable)) {
		name, _, _ := strings.Cut(line, "\t")
		groupOrder = append(groupOrder, name)
	}
	for _, legacy := range []bool{false, true} {
		client := discovery.NewDiscoveryClientForConfigOrDie(s.Config)
		client.UseLegacyDiscovery = legacy
		groups, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		got := tableOf(t, lists)
		if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
			t.Errorf("legacy %v (-golden +got):\n%s", legacy, diff)
		}
		var order []string
		for _, g := range groups {
			order = append(order, g.Name)
		}
		if diff := cmp.Diff(groupOrder[1:], order); diff != "" {
			t.Errorf("legacy %v: order of groups (-want +got):\n%s", legacy, diff)
		}
		for _, g := range groups {
			if g.Name == "autoscaling" && (g.PreferredVersion.Version != "v2" || len(g.Versions) != 2) {
				t.Errorf("%+v", g)
			}
		}
	}
}

func sorted(lines []string) []string {
	lines = slices.Clone(lines)
	slices.Sort(lines)
	return lines
}

// tableOf renders resource lists in the form of the golden table.
func tableOf(t *testing.T, lists []*metav1.APIResourceList) []string {
	t.Helper()
	var lines []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		subresources := map[string][]string{}
		for _, r := range list.APIResources {
			if name, sub, ok := strings.Cut(r.Name, "/"); ok {
				subresources[name] = append(subresources[name], sub)
			}
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			scope := "Cluster"
			if r.Namespaced {
				scope = "Namespaced"
			}
			lines = append(lines, strings.Join([]string{
				gv.Group, gv.Version, r.Name, r.Kind, scope, strings.Join(r.ShortNames, ","), strings.Join(r.Categories, ","),
				strings.Join(r.Verbs, ","), strings.Join(sorted(subresources[r.Name]), ","),
			}, "\t"))
		}
	}
	return lines
}

// Resources that are stored have a hash of their storage version if the gate is on.
func TestStorageVersionHashes(t *testing.T) {
	for _, gate := range []string{"StorageVersionHash=true", "StorageVersionHash=false"} {
		features, err := feature.Parse([]string{gate})
		if err != nil {
			t.Fatal(err)
		}
		s := apiservertest.Start(t, func(c *apiserver.Config) { c.Registry.Features = features })
		code, body, _ := call(t, s, "GET", "/api/v1", "")
		var list metav1.APIResourceList
		if err := json.Unmarshal(body, &list); err != nil || code != http.StatusOK {
			t.Fatal(code, err)
		}
		at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods" })
		if at < 0 || (list.APIResources[at].StorageVersionHash != "") != features.Enabled(feature.StorageVersionHash) {
			t.Errorf("%s: %+v", gate, list.APIResources)
		}
	}
}

func TestDiscoveryETag(t *testing.T) {
	s := apiservertest.Start(t)
	accept := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	code, body, header := call(t, s, "GET", "/apis", "", "Accept", accept)
	if code != http.StatusOK || header.Get("ETag") == "" || header.Get("Content-Type") != "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" {
		t.Fatalf("%d %v %s", code, header, body)
	}
	code, body, _ = call(t, s, "GET", "/apis", "", "Accept", accept, "If-None-Match", header.Get("ETag"))
	if code != http.StatusNotModified || len(body) != 0 {
		t.Errorf("%d %s", code, body)
	}
	_, body, _ = call(t, s, "GET", "/api", "", "Accept", accept)
	if !strings.HasPrefix(string(body), `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{`) {
		t.Errorf("%.200s", body)
	}
}

func TestPlainDiscovery(t *testing.T) {
	s := apiservertest.Start(t)
	for path, want := range map[string]string{
		"/api":          `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"`,
		"/apis/apps":    `{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"controllerrevisions","singularName":"controllerrevision","namespaced":true,"kind":"ControllerRevision","verbs":[`,
		"/api/v1":       `{"kind":"APIResourceList",`,
		"/version":      "{\n  \"major\": \"1\",\n  \"minor\": \"37\",",
		"/version/":     "{\n  \"major\": \"1\",",
		"/":             "{\n  \"paths\": [\n    \"/api\",\n    \"/api/v1\",",
		"/healthz":      "ok",
		"/livez":        "ok",
		"/readyz":       "ok",
		"/readyz/etcd":  "ok",
		"/readyz?verbose&exclude=etcd&exclude=none": "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness ok\n[+]informer-sync ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \"none\"\nreadyz check passed\n",
	} {
		code, body, _ := call(t, s, "GET", path, "")
		if code != http.StatusOK || !strings.HasPrefix(string(body), want) {
			t.Errorf("%s: %d %.300s", path, code, body)
		}
	}
	_, body, _ := call(t, s, "GET", "/", "")
	for _, want := range []string{"/healthz/log", "/livez/etcd", "/livez/ping", "/readyz/informer-sync", "/readyz/shutdown"} {
		if !strings.Contains(string(body), `"`+want+`"`) {
			t.Errorf("%s is not among the paths", want)
		}
	}
	_, body, _ = call(t, s, "GET", "/metrics", "")
	for _, want := range []string{"apiserver_request_total{", "apiserver_request_duration_seconds_bucket{", "apiserver_current_inflight_requests{", "process_resident_memory_bytes"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s is not among the metrics", want)
		}
	}
}

func TestReviews(t *testing.T) {
	s := apiservertest.Start(t)
	const authorization = "/apis/authorization.k8s.io/v1/"
	for _, test := range []struct {
		path, body string
		code       int
		want       string
	}{
		{authorization + "selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, 201, `"status":{"allowed":true}`},
		{authorization + "subjectaccessreviews", `{"spec":{"user":"nobody","resourceAttributes":{"verb":"get","resource":"pods"}}}`, 201, `"status":{"allowed":false}`},
		{authorization + "subjectaccessreviews", `{"spec":{"user":"nobody","nonResourceAttributes":{"verb":"get","path":"/x"}}}`, 201, `"status":{"allowed":false}`},
		{
			authorization + "subjectaccessreviews", `{"spec":{"user":"nobody","nonResourceAttributes":{"path":"/x"},"resourceAttributes":{"verb":"get"}}}`, 422,
			`{\"Path\":\"/x\",\"Verb\":\"\"}: cannot be specified in combination with resourceAttributes`,
		},
		{authorization + "subjectaccessreviews", `{"spec":{"user":"nobody"}}`, 422, "exactly one of nonResourceAttributes or resourceAttributes must be specified"},
		{authorization + "subjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get"}}}`, 422, "at least one of user or group must be specified"},
		{authorization + "namespaces/x/localsubjectaccessreviews", `{"spec":{"user":"nobody","resourceAttributes":{"namespace":"x","verb":"get"}}}`, 201, `"allowed":false`},
		{authorization + "namespaces/x/localsubjectaccessreviews", `{"spec":{"user":"nobody","resourceAttributes":{"namespace":"y","verb":"get"}}}`, 422, "must match metadata.namespace"},
		{authorization + "namespaces/x/localsubjectaccessreviews", `{"spec":{"user":"nobody"}}`, 422, "exactly one"},
		{authorization + "selfsubjectrulesreviews", `{"spec":{"namespace":"x"}}`, 201, `"incomplete":true`},
		{"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, 201, `"userInfo":{"username":"admin","groups":["system:authenticated","system:masters"]}`},
		{"/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"x"}}`, 201, `"error":"no token authenticator is configured"`},
		{"/apis/authentication.k8s.io/v1/tokenreviews", `{}`, 400, "token is required for TokenReview in authentication"},
	} {
		code, body, _ := call(t, s, "POST", test.path, test.body)
		if code != test.code || !strings.Contains(string(body), test.want) {
			t.Errorf("%s %s: %d %s", test.path, test.body, code, body)
		}
	}
	if code, body, _ := call(t, s, "GET", "/api/v1/componentstatuses", ""); code != http.StatusOK || !json.Valid(body) || !strings.Contains(string(body), `"name":"etcd-0"`) {
		t.Errorf("%d %s", code, body)
	}
	// A user with the right groups speaks for others.
	_, body, _ := call(t, s, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}", "Impersonate-User", "system:serviceaccount:a:b", "Impersonate-Extra-Key%2Fx", "v")
	if !strings.Contains(string(body), `"userInfo":{"username":"system:serviceaccount:a:b","groups":["system:serviceaccounts","system:serviceaccounts:a","system:authenticated"],"extra":{"key/x":["v"]}}`) {
		t.Errorf("%s", body)
	}
}
