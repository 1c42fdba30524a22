package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// A response lists a bounded number of an object's errors. The time to build a
// message with all of them grows with the square of their number.
func TestFaultsWithoutEnd(t *testing.T) {
	s := apiservertest.Start(t)
	var labels strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&labels, `"+%d":"",`, i)
	}
	code, body, _ := call(t, s, "POST", mapsPath, configMap("bad", `,"labels":{`+strings.TrimSuffix(labels.String(), ",")+`}}`))
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatal(err)
	}
	if code != http.StatusUnprocessableEntity || len(status.Details.Causes) != 1000 || !strings.HasSuffix(status.Message, " and 99000 more") {
		t.Errorf("%d, %d causes, %q", code, len(status.Details.Causes), status.Message[max(0, len(status.Message)-50):])
	}
}

// The time that merging lists takes grows with the square of their lengths,
// so that long ones are refused.
func TestStrategicPatchOfLongLists(t *testing.T) {
	s := apiservertest.Start(t)
	variables := func(prefix string, n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `{"name":"%s%d"},`, prefix, i)
		}
		return strings.TrimSuffix(text.String(), ",")
	}
	const path = "/apis/apps/v1/namespaces/default/deployments"
	body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"long"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
		`"spec":{"containers":[{"name":"main","image":"example/web:1","env":[` + variables("a", 20_000) + `]}]}}}}`
	short := strings.ReplaceAll(strings.ReplaceAll(body, variables("a", 20_000), variables("a", 1000)), "long", "short")
	for _, text := range []string{body, short} {
		if code, answer, _ := call(t, s, "POST", path, text); code != http.StatusCreated {
			t.Fatalf("%d %.300s", code, answer)
		}
	}
	for _, test := range []struct {
		name      string
		variables int
		code      int
	}{
		{"short", 100, http.StatusOK}, {"short", 6000, http.StatusRequestEntityTooLarge}, {"long", 1, http.StatusRequestEntityTooLarge},
	} {
		patch := `{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[` + variables("b", test.variables) + `]}]}}}}`
		code, answer, _ := call(t, s, "PATCH", path+"/"+test.name, patch, "Content-Type", "application/strategic-merge-patch+json")
		if code != test.code || code != http.StatusOK && !strings.Contains(string(answer), "use a merge patch or apply") {
			t.Errorf("%d variables for a %s list: %d %.300s", test.variables, test.name, code, answer)
		}
	}
	var repeated strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&repeated, `{"name":"main","env":[%s]},`, variables(fmt.Sprint("c", i, "-"), 50))
	}
	again := `{"spec":{"template":{"spec":{"containers":[` + strings.TrimSuffix(repeated.String(), ",") + `]}}}}`
	if code, answer, _ := call(t, s, "PATCH", path+"/short", again, "Content-Type", "application/strategic-merge-patch+json"); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a list that grows with each of many elements: %d %.300s", code, answer)
	}
	order := `{"spec":{"template":{"spec":{"volumes":[` + variables("v", 6000) + `],"$setElementOrder/volumes":[` + variables("v", 6000) + `]}}}}`
	if code, answer, _ := call(t, s, "PATCH", path+"/short", order, "Content-Type", "application/strategic-merge-patch+json"); code != http.StatusRequestEntityTooLarge {
		t.Errorf("the order of a new list: %d %.300s", code, answer)
	}
	if code, answer, _ := call(t, s, "PATCH", path+"/long", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/strategic-merge-patch+json"); code != http.StatusOK {
		t.Errorf("a label for an object with a long list: %d %.300s", code, answer)
	}
}

// Invalid strategic merge patches are errors, not panics.
func TestStrategicPatchesThatMakeNoSense(t *testing.T) {
	s := apiservertest.Start(t)
	const pods = "/api/v1/namespaces/default/pods"
	if code, answer, _ := call(t, s, "POST", pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"example/web:1"}]}}`); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	for path, patch := range map[string]string{
		pods + "/p/status": `{"status":{"conditions":[{"type":{"a":1}}]}}`,
		pods + "/p":        `{"metadata":{"$setElementOrder/finalizers":[[],{}],"finalizers":[[]]}}`,
		"/api/v1/namespaces/default/pods/p?fieldManager=x": `{"spec":{"containers":[{"name":[]}]}}`,
	} {
		code, answer, _ := call(t, s, "PATCH", path, patch, "Content-Type", "application/strategic-merge-patch+json")
		if code != http.StatusBadRequest && code != http.StatusUnprocessableEntity {
			t.Errorf("PATCH %s %s: %d %.300s", path, patch, code, answer)
		}
	}
}

// Lists that a patch replaces or adds are not compared.
func TestStrategicPatchOfReplacedLists(t *testing.T) {
	s := apiservertest.Start(t)
	elements := func(format string, n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format+",", i)
		}
		return strings.TrimSuffix(text.String(), ",")
	}
	addresses := elements(`{"ip":"192.0.2.1","hostname":"h%d"}`, 5200)
	names := elements(`"name%d"`, 5200)
	variables := elements(`{"name":"a%d"}`, 5200)
	for _, test := range []struct{ path, name, spec, patch string }{
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles", "long", `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"resourceNames":[` + names + `]}]`, `"rules":[{"verbs":["list"],"apiGroups":[""],"resources":["pods"],"resourceNames":[` + names + `]}]`},
		{"/api/v1/namespaces/default/endpoints", "long", `"subsets":[{"addresses":[` + addresses + `]}]`, `"subsets":[{"addresses":[{"ip":"192.0.2.2"},` + addresses + `]}]`},
		{
			"/apis/apps/v1/namespaces/default/deployments", "none", `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"example/web:1"}]}}}`,
			`"spec":{"template":{"spec":{"containers":[{"name":"main","env":[` + variables + `]}]}}}`,
		},
	} {
		if code, answer, _ := call(t, s, "POST", test.path, `{"metadata":{"name":"`+test.name+`"},`+test.spec+`}`); code != http.StatusCreated {
			t.Errorf("%s: %d %.300s", test.path, code, answer)
			continue
		}
		code, answer, _ := call(t, s, "PATCH", test.path+"/"+test.name, `{`+test.patch+`}`, "Content-Type", "application/strategic-merge-patch+json")
		if code != http.StatusOK {
			t.Errorf("%s: %d %.300s", test.path, code, answer)
		}
	}
}
