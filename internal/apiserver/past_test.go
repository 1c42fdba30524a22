package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// listed is a list of pods of all namespaces.
type listed struct {
	metav1.ListMeta
	keys []string
}

// listPods lists the pods of all namespaces.
func listPods(t *testing.T, s *apiservertest.Server, query string) listed {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	code, body, _ := call(t, s, "GET", everyPod+"?"+query, "")
	if err := json.Unmarshal(body, &list); code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %v %s", query, code, err, body)
	}
	out := listed{ListMeta: list.ListMeta}
	for _, item := range list.Items {
		out.keys = append(out.keys, item.Namespace+"/"+item.Name)
	}
	return out
}

// pastState is the pods after a write.
type pastState struct {
	revision string
	keys     []string
}

// writePods creates, changes and deletes pods in three namespaces. It returns what there was
// after each write.
func writePods(t *testing.T, s *apiservertest.Server) (states []pastState) {
	t.Helper()
	for _, namespace := range []string{"first", "second", "third"} {
		makeNamespace(t, s, namespace)
	}
	var keys []string
	write := func(method, key, body string, want int) {
		t.Helper()
		namespace, name, _ := strings.Cut(key, "/")
		path, headers := "/api/v1/namespaces/"+namespace+"/pods", []string(nil)
		if method != "POST" {
			path += "/" + name
		}
		if method == "PATCH" {
			headers = []string{"Content-Type", "application/merge-patch+json"}
		}
		if code, answer, _ := call(t, s, method, path, body, headers...); code != want {
			t.Fatalf("%s %s: %d %s", method, path, code, answer)
		}
		now := listPods(t, s, "")
		if !slices.Equal(now.keys, keys) {
			t.Fatalf("after %s of %s there are %v, want %v", method, key, now.keys, keys)
		}
		states = append(states, pastState{now.ResourceVersion, slices.Clone(keys)})
	}
	for _, key := range []string{"first/bar", "second/bar", "second/foo", "third/barfoo", "third/foo", "second/baz"} {
		keys = append(keys, key)
		slices.Sort(keys)
		_, name, _ := strings.Cut(key, "/")
		write("POST", key, strings.Replace(podBody, `"name":"web"`, fmt.Sprintf(`"name":%q`, name), 1), http.StatusCreated)
	}
	write("PATCH", "first/bar", `{"metadata":{"labels":{"changed":"true"}}}`, http.StatusOK)
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "second/baz" })
	write("DELETE", "second/baz", "", http.StatusOK)
	return states
}

// Each state of the past is listed as it was, whole and in parts of any size: with the version that
// was asked for, a token for the rest, and how much that is.
func TestListsOfThePast(t *testing.T) {
	s := apiservertest.Start(t)
	for _, state := range writePods(t, s) {
		revision, err := strconv.ParseInt(state.revision, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		exact := "resourceVersion=" + state.revision + "&resourceVersionMatch=Exact"
		if all := listPods(t, s, exact); !slices.Equal(all.keys, state.keys) || all.ResourceVersion != state.revision || all.Continue != "" || all.RemainingItemCount != nil {
			t.Errorf("at %s: %v %+v, want %v", state.revision, all.keys, all.ListMeta, state.keys)
		}
		for limit := 1; limit <= len(state.keys)+1; limit++ {
			shown := min(limit, len(state.keys))
			for _, query := range []string{exact, "resourceVersion=" + state.revision} { // a limit makes it exact
				page := listPods(t, s, fmt.Sprintf("%s&limit=%d", query, limit))
				if !slices.Equal(page.keys, state.keys[:shown]) || page.ResourceVersion != state.revision {
					t.Errorf("%s, limit %d: %v %+v", query, limit, page.keys, page.ListMeta)
				}
				left := int64(len(state.keys) - shown)
				if left == 0 {
					if page.Continue != "" || page.RemainingItemCount != nil {
						t.Errorf("%s, limit %d: the last page %+v", query, limit, page.ListMeta)
					}
					continue
				}
				if page.RemainingItemCount == nil || *page.RemainingItemCount != left {
					t.Errorf("%s, limit %d: %+v, want %d more", query, limit, page.ListMeta, left)
				}
				start, of, err := storage.DecodeContinue(page.Continue, "/")
				if err != nil || start != "/"+state.keys[shown-1]+"\x00" || of != revision {
					t.Errorf("%s, limit %d: the token is of %d, from %q: %v", query, limit, of, start, err)
				}
				rest := listPods(t, s, "continue="+url.QueryEscape(page.Continue))
				if !slices.Equal(rest.keys, state.keys[shown:]) || rest.ResourceVersion != state.revision || rest.Continue != "" {
					t.Errorf("%s, limit %d: the rest is %v %+v", query, limit, rest.keys, rest.ListMeta)
				}
			}
		}
	}
}

// A token of revision -1 goes on with what there is now. The next token is of the revision that
// was listed, which does not change any more. Other tokens without a revision, a start or a form
// are refused, and so are versions that are none.
func TestContinueTokens(t *testing.T) {
	s := apiservertest.Start(t)
	states := writePods(t, s)
	now := states[len(states)-1]
	token := func(start string, revision int64) string {
		t.Helper()
		encoded, err := storage.EncodeContinue("/"+start, "/", revision)
		if err != nil {
			t.Fatal(err)
		}
		return url.QueryEscape(encoded)
	}
	after := token(now.keys[0]+"\x00", -1)
	if rest := listPods(t, s, "continue="+after); !slices.Equal(rest.keys, now.keys[1:]) || rest.Continue != "" {
		t.Errorf("the rest of now: %v %+v", rest.keys, rest.ListMeta)
	}
	page := listPods(t, s, "limit=2&continue="+after)
	if !slices.Equal(page.keys, now.keys[1:3]) || page.RemainingItemCount == nil || *page.RemainingItemCount != int64(len(now.keys)-3) {
		t.Errorf("a page of now: %v %+v", page.keys, page.ListMeta)
	}
	if code, body, _ := call(t, s, "DELETE", "/api/v1/namespaces/third/pods/foo", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	for _, query := range []string{"", "&resourceVersion=0"} {
		if rest := listPods(t, s, "continue="+url.QueryEscape(page.Continue)+query); !slices.Equal(rest.keys, now.keys[3:]) || rest.ResourceVersion != page.ResourceVersion {
			t.Errorf("what followed the page%s: %v %+v", query, rest.keys, rest.ListMeta)
		}
	}
	for name, query := range map[string]string{
		"no start":             "continue=" + token("", 5),
		"no revision":          "continue=" + token(now.keys[0]+"\x00", 0),
		"no token":             "continue=first",
		"another version":      "continue=" + after + "&resourceVersion=" + now.revision,
		"a negative version":   "resourceVersion=-1",
		"a version of letters": "resourceVersion=new",
		"an unknown match":     "resourceVersion=" + now.revision + "&resourceVersionMatch=Invalid",
		"exactly 0":            "resourceVersion=0&resourceVersionMatch=Exact",
	} {
		if code, body, _ := call(t, s, "GET", everyPod+"?"+query, ""); code < http.StatusBadRequest || code >= http.StatusInternalServerError {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}
