package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

func mustCreate(t *testing.T, s *apiservertest.Server, path, body string) {
	t.Helper()
	if code, answer, _ := call(t, s, "POST", path, body); code != http.StatusCreated {
		t.Fatalf("create: %d %s", code, answer)
	}
}

func listMaps(t *testing.T, s *apiservertest.Server, query string) (*corev1.ConfigMapList, *metav1.Status) {
	t.Helper()
	code, body, _ := call(t, s, "GET", mapsPath+"?"+query, "")
	if code != http.StatusOK {
		status := &metav1.Status{}
		if err := json.Unmarshal(body, status); err != nil {
			t.Fatalf("%d %s", code, body)
		}
		return nil, status
	}
	list := &corev1.ConfigMapList{}
	if err := json.Unmarshal(body, list); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return list, nil
}

func namesOf(list *corev1.ConfigMapList) string {
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return strings.Join(names, " ")
}

// Pages show the state of the first page, whatever happens in between.
func TestPages(t *testing.T) {
	s := apiservertest.Start(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		mustCreate(t, s, mapsPath, configMap(name, `,"labels":{"odd":"`+fmt.Sprint((name[0]-'a')%2 == 0)+`"}}`))
	}
	first, _ := listMaps(t, s, "limit=2")
	if namesOf(first) != "a b" || first.Continue == "" || first.RemainingItemCount == nil || *first.RemainingItemCount != 3 {
		t.Fatalf("first page: %s %+v", namesOf(first), first.ListMeta)
	}
	mustCreate(t, s, mapsPath, configMap("bb", "}"))
	if code, body, _ := call(t, s, "DELETE", mapsPath+"/c", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	second, _ := listMaps(t, s, "limit=2&continue="+url.QueryEscape(first.Continue))
	if namesOf(second) != "c d" || second.ResourceVersion != first.ResourceVersion {
		t.Fatalf("second page: %s %+v", namesOf(second), second.ListMeta)
	}
	third, _ := listMaps(t, s, "limit=2&continue="+url.QueryEscape(second.Continue))
	if namesOf(third) != "e" || third.Continue != "" || third.RemainingItemCount != nil {
		t.Fatalf("third page: %s %+v", namesOf(third), third.ListMeta)
	}
	// A list of everything written so far; those after it may be of any state since.
	if now, _ := listMaps(t, s, ""); namesOf(now) != "a b bb d e" {
		t.Errorf("the present: %s", namesOf(now))
	}
	all, _ := listMaps(t, s, "limit=2&resourceVersion=0")
	if namesOf(all) != "a b bb d e" {
		t.Errorf("resourceVersion=0 ignores the limit: %s", namesOf(all))
	}
	past, _ := listMaps(t, s, "resourceVersionMatch=Exact&resourceVersion="+first.ResourceVersion)
	if namesOf(past) != "a b c d e" {
		t.Errorf("exact: %s", namesOf(past))
	}
	newer, _ := listMaps(t, s, "resourceVersionMatch=NotOlderThan&resourceVersion="+first.ResourceVersion)
	if namesOf(newer) != "a b bb d e" {
		t.Errorf("not older: %s", namesOf(newer))
	}
	odd, _ := listMaps(t, s, "labelSelector=odd%3Dtrue&limit=1")
	if namesOf(odd) != "a" || odd.Continue == "" || odd.RemainingItemCount != nil {
		t.Errorf("with a selector: %s %+v", namesOf(odd), odd.ListMeta)
	}
	one, _ := listMaps(t, s, "fieldSelector=metadata.name%3De")
	if namesOf(one) != "e" {
		t.Errorf("by name: %s", namesOf(one))
	}
	if _, status := listMaps(t, s, "limit=2&resourceVersion=3&continue="+url.QueryEscape(first.Continue)); status == nil || status.Code != 400 {
		t.Errorf("continue with a version: %+v", status)
	}
}

// A watch from before what the server knows ends with an error event.
func TestExpiredWatch(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	mustCreate(t, s, mapsPath, configMap("b", "}"))
	s = apiservertest.StartOn(t, s.Store)
	w := watch(t, s, "resourceVersion=1")
	e, _ := w.next()
	if e.Type != "ERROR" || e.Object.Kind != "Status" || e.Object.Code != http.StatusGone || e.Object.Reason != string(metav1.StatusReasonExpired) {
		t.Fatalf("%+v", e)
	}
	if e, ok := w.next(); ok {
		t.Fatalf("%+v after the error", e)
	}
}

func TestListBytes(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	code, body, header := call(t, s, "GET", mapsPath, "")
	if code != http.StatusOK || header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", code, header)
	}
	for _, want := range []string{`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"`, `"items":[{"metadata":{"name":"a",`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	_, empty, _ := call(t, s, "GET", "/api/v1/namespaces/empty/configmaps", "")
	if !strings.HasSuffix(string(empty), `"items":[]}`+"\n") {
		t.Errorf("empty list: %s", empty)
	}
	_, pretty, _ := call(t, s, "GET", mapsPath+"/a?pretty=true", "")
	if !strings.HasPrefix(string(pretty), "{\n  \"kind\": \"ConfigMap\",\n") {
		t.Errorf("pretty: %s", pretty)
	}
	_, asYAML, header := call(t, s, "GET", mapsPath, "", "Accept", "application/yaml")
	if !strings.HasPrefix(string(asYAML), "apiVersion: v1\nitems:\n- metadata:\n") || header.Get("Content-Type") != "application/yaml" {
		t.Errorf("YAML: %s", asYAML)
	}
}

func TestTable(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, podsPath, podBody)
	for _, test := range []struct{ path, object string }{
		{podsPath, `"kind":"PartialObjectMetadata"`},
		{podsPath + "/web", `"kind":"PartialObjectMetadata"`},
		{podsPath + "?includeObject=None", `"object":null`},
		{podsPath + "?includeObject=Object", `"object":{"kind":"Pod"`},
	} {
		code, body, _ := call(t, s, "GET", test.path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
		var table metav1.Table
		if err := json.Unmarshal(body, &table); code != http.StatusOK || err != nil {
			t.Fatalf("%d %v %s", code, err, body)
		}
		if table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" || len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
			t.Errorf("%s", body)
		}
		if table.Rows[0].Cells[0] != "web" || !strings.Contains(string(body), test.object) {
			t.Errorf("%s: %s", test.path, body)
		}
	}
	if code, body, _ := call(t, s, "GET", podsPath+"?includeObject=All", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, body)
	}
}

func TestReviewsHaveNoTable(t *testing.T) {
	s := apiservertest.Start(t)
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`
	for accept, want := range map[string]int{
		"application/json;as=Table;v=v1;g=meta.k8s.io":                  406,
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json": 201,
	} {
		if code, data, _ := call(t, s, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, "Accept", accept); code != want {
			t.Errorf("%s: got %d, want %d: %s", accept, code, want, data)
		}
	}
}

func TestMetadataOnly(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, podsPath, podBody)
	_, body, _ := call(t, s, "GET", podsPath, "", "Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil || list.Kind != "PartialObjectMetadataList" || len(list.Items) != 1 ||
		list.Items[0].Name != "web" || list.Items[0].Kind != "PartialObjectMetadata" || strings.Contains(string(body), "containers") {
		t.Errorf("%v %s", err, body)
	}
	if code, body, _ := call(t, s, "GET", podsPath, "", "Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"); code != http.StatusNotAcceptable {
		t.Errorf("%d %s", code, body)
	}
}

// The timeout in a request's URL must be a duration. None, and one beyond the
// server's, is the server's.
func TestTimeoutOfARequest(t *testing.T) {
	s := apiservertest.Start(t)
	for query, want := range map[string]int{"soon": http.StatusBadRequest, "5": http.StatusBadRequest, "0s": http.StatusOK, "": http.StatusOK, "5s": http.StatusOK, "100h": http.StatusOK} {
		code, body, _ := call(t, s, "GET", mapsPath+"?timeout="+query, "")
		if code != want || want == http.StatusBadRequest && !strings.Contains(string(body), "invalid timeout specified in the request URL") {
			t.Errorf("%q: %d %s, want %d", query, code, body, want)
		}
	}
}
