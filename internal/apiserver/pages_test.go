package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

const everyPod = "/api/v1/pods"

// pageThrough lists in pages of one object and returns their keys in the order
// in which they came. turn chooses the server of each page.
func pageThrough(t *testing.T, path, query string, turn func(page int) *apiservertest.Server) string {
	t.Helper()
	var keys []string
	token, revision := "", ""
	for page := 0; page == 0 || token != ""; page++ {
		var list metav1.PartialObjectMetadataList
		code, body, _ := call(t, turn(page), "GET", path+"?limit=1"+query+"&continue="+url.QueryEscape(token), "")
		if err := json.Unmarshal(body, &list); code != http.StatusOK || err != nil {
			t.Fatalf("page %d: %d %v %s", page, code, err, body)
		}
		for _, item := range list.Items {
			keys = append(keys, item.Namespace+"/"+item.Name)
		}
		if page > 0 && list.ResourceVersion != revision {
			t.Fatalf("page %d is of %s, the first of %s", page, list.ResourceVersion, revision)
		}
		if remaining := list.RemainingItemCount; query == "" && list.Continue != "" && (remaining == nil || *remaining < 1) {
			t.Errorf("page %d: %+v", page, list.ListMeta)
		}
		token, revision = list.Continue, list.ResourceVersion
	}
	return strings.Join(keys, " ")
}

// Pages come in the order of the store's keys, in which the namespace a-b is
// before a, whether the cache or, for a server that started since, the store
// answers; every selection passes over nothing.
func TestPagesOfCacheAndStoreAgree(t *testing.T) {
	first := apiservertest.Start(t)
	for _, namespace := range []string{"a", "a-b", "ab"} {
		makeNamespace(t, first, namespace)
		for _, name := range []string{"x", "x-y"} {
			body := strings.Replace(podBody, `"name":"web"`, fmt.Sprintf(`"name":%q,"labels":{"app":"web"}`, name), 1)
			mustCreate(t, first, "/api/v1/namespaces/"+namespace+"/pods", body)
		}
	}
	var second *apiservertest.Server
	cases := []struct{ path, query, want string }{
		{everyPod, "", "a-b/x a-b/x-y a/x a/x-y ab/x ab/x-y"},
		{everyPod, "&fieldSelector=spec.nodeName%3D", "a-b/x a-b/x-y a/x a/x-y ab/x ab/x-y"},
		{everyPod, "&labelSelector=app%3Dweb", "a-b/x a-b/x-y a/x a/x-y ab/x ab/x-y"},
		{everyPod, "&fieldSelector=metadata.name%3Dx-y", "a-b/x-y a/x-y ab/x-y"},
		{"/api/v1/namespaces/a/pods", "", "a/x a/x-y"},
	}
	for _, c := range cases {
		if got := pageThrough(t, c.path, c.query, func(int) *apiservertest.Server { return first }); got != c.want {
			t.Errorf("%s %s: %s", c.path, c.query, got)
		}
	}
	// The second server does not know what was before it, but the store does.
	for _, c := range cases {
		got := pageThrough(t, c.path, c.query, func(page int) *apiservertest.Server {
			if page == 0 {
				return first
			}
			if page == 1 {
				mustCreate(t, first, mapsPath, `{"metadata":{"generateName":"later-"}}`)
				second = apiservertest.StartOn(t, first.Store)
			}
			return second
		})
		if got != c.want {
			t.Errorf("through two servers: %s %s: %s", c.path, c.query, got)
		}
	}
}

// A token of a revision that the store has forgotten answers 410 with one that
// goes on from now.
func TestExpiredPage(t *testing.T) {
	s := apiservertest.Start(t)
	for _, name := range []string{"a", "b", "c"} {
		mustCreate(t, s, mapsPath, configMap(name, "}"))
	}
	first, _ := listMaps(t, s, "limit=1")
	mustCreate(t, s, mapsPath, configMap("d", "}"))
	s = apiservertest.StartOn(t, s.Store)
	revision, err := s.Store.CurrentRevision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Store.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	_, status := listMaps(t, s, "limit=1&continue="+url.QueryEscape(first.Continue))
	if status == nil || status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired || status.Continue == "" {
		t.Fatalf("%+v", status)
	}
	rest, status := listMaps(t, s, "continue="+url.QueryEscape(status.Continue))
	if status != nil || namesOf(rest) != "b c d" {
		t.Fatalf("%+v %+v", rest, status)
	}
	if _, status := listMaps(t, s, "resourceVersionMatch=Exact&resourceVersion="+first.ResourceVersion); status == nil || status.Code != http.StatusGone {
		t.Fatalf("a list of a forgotten revision: %+v", status)
	}
}
