package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// answer holds the fields of a response that tests check.
type answer struct {
	Kind, APIVersion string
	Status           json.RawMessage
	Details          metav1.StatusDetails
	Metadata         metav1.ObjectMeta
	Spec             json.RawMessage
	Data             map[string]string
}

func do(t *testing.T, s *apiservertest.Server, want int, method, path, body string, headers ...string) answer {
	t.Helper()
	code, data, _ := call(t, s, method, path, body, headers...)
	if code != want {
		t.Fatalf("%s %s: got %d, want %d: %s", method, path, code, want, data)
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return a
}

// TestDeleteUndecodable checks that an object whose stored value is broken can be
// deleted, and only such an object.
func TestDeleteUndecodable(t *testing.T) {
	s := apiservertest.Start(t)
	const (
		configMaps = "/api/v1/namespaces/default/configmaps"
		ignoring   = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	)
	if _, err := s.Store.Create(t.Context(), "/registry/configmaps/default/broken", []byte("k8s\x00\xff"), 0); err != nil {
		t.Fatal(err)
	}
	do(t, s, 500, "DELETE", configMaps+"/broken", "")
	do(t, s, 422, "DELETE", configMaps+"/broken"+ignoring+"&propagationPolicy=Orphan", "")
	do(t, s, 422, "DELETE", configMaps+ignoring, "")
	do(t, s, 403, "DELETE", configMaps+"/broken"+ignoring, "", "X-Test-User", "alice")
	do(t, s, 200, "DELETE", configMaps+"/broken"+ignoring+"&dryRun=All", "")
	do(t, s, 200, "DELETE", configMaps+"/broken"+ignoring, "")
	do(t, s, 404, "DELETE", configMaps+"/broken"+ignoring, "")
	do(t, s, 201, "POST", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"broken"}}`)
	do(t, s, 409, "DELETE", configMaps+"/broken"+ignoring, "")
	do(t, s, 200, "GET", configMaps+"/broken", "")
}

func TestGenerateName(t *testing.T) {
	s := apiservertest.Start(t)
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"conf-"}}`
	first := do(t, s, 201, "POST", mapsPath, body)
	second := do(t, s, 201, "POST", mapsPath, body)
	if !strings.HasPrefix(first.Metadata.Name, "conf-") || len(first.Metadata.Name) != len("conf-")+5 || first.Metadata.Name == second.Metadata.Name {
		t.Errorf("%q %q", first.Metadata.Name, second.Metadata.Name)
	}
	ns := do(t, s, 201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"team-"}}`)
	if got := ns.Metadata.Labels["kubernetes.io/metadata.name"]; got != ns.Metadata.Name {
		t.Errorf("namespace %q is labelled %q", ns.Metadata.Name, got)
	}
}

func TestDryRun(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", mapsPath+"?dryRun=All", configMap("x", "}"))
	do(t, s, 404, "GET", mapsPath+"/x", "")
	made := do(t, s, 201, "POST", mapsPath, configMap("x", "}"))
	if dry := do(t, s, 200, "PUT", mapsPath+"/x?dryRun=All", configMap("x", `},"data":{"a":"b"}`)); dry.Data["a"] != "b" {
		t.Errorf("%+v", dry)
	}
	do(t, s, 200, "PATCH", mapsPath+"/x?dryRun=All", `{"data":{"a":"b"}}`, "Content-Type", "application/merge-patch+json")
	do(t, s, 200, "DELETE", mapsPath+"/x?dryRun=All", "")
	do(t, s, 200, "DELETE", mapsPath+"?dryRun=All", "")
	if now := do(t, s, 200, "GET", mapsPath+"/x", ""); now.Metadata.ResourceVersion != made.Metadata.ResourceVersion || now.Data != nil {
		t.Errorf("%+v", now)
	}
}

// A write that changes nothing writes nothing.
func TestNoChange(t *testing.T) {
	s := apiservertest.Start(t)
	made := do(t, s, 201, "POST", mapsPath, configMap("x", `},"data":{"a":"b"}`))
	same := do(t, s, 200, "PUT", mapsPath+"/x", configMap("x", `},"data":{"a":"b"}`))
	patched := do(t, s, 200, "PATCH", mapsPath+"/x", `{"data":{"a":"b"}}`, "Content-Type", "application/merge-patch+json")
	if same.Metadata.ResourceVersion != made.Metadata.ResourceVersion || patched.Metadata.ResourceVersion != made.Metadata.ResourceVersion {
		t.Errorf("%s %s %s", made.Metadata.ResourceVersion, same.Metadata.ResourceVersion, patched.Metadata.ResourceVersion)
	}
}

func TestFinalizers(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", mapsPath, configMap("x", `,"finalizers":["example.com/wait"]}`))
	going := do(t, s, 200, "DELETE", mapsPath+"/x", "")
	if going.Kind != "ConfigMap" || going.Metadata.DeletionTimestamp == nil || *going.Metadata.DeletionGracePeriodSeconds != 0 {
		t.Fatalf("%+v", going)
	}
	again := do(t, s, 200, "DELETE", mapsPath+"/x", "")
	if !again.Metadata.DeletionTimestamp.Equal(going.Metadata.DeletionTimestamp) {
		t.Errorf("a second DELETE moved the time: %+v", again)
	}
	if message := string(mustFail(t, s, 409, "POST", mapsPath, configMap("x", "}"))); !strings.Contains(message, `object is being deleted: configmaps \"x\" already exists`) {
		t.Error(message)
	}
	do(t, s, 422, "PATCH", mapsPath+"/x", `{"metadata":{"finalizers":["example.com/other"]}}`, "Content-Type", "application/merge-patch+json")
	last := do(t, s, 200, "PATCH", mapsPath+"/x", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	if last.Kind != "ConfigMap" || last.Metadata.Name != "x" {
		t.Errorf("%+v", last)
	}
	do(t, s, 404, "GET", mapsPath+"/x", "")
}

func mustFail(t *testing.T, s *apiservertest.Server, want int, method, path, body string) []byte {
	t.Helper()
	code, data, _ := call(t, s, method, path, body)
	if code != want {
		t.Fatalf("%d %s", code, data)
	}
	return data
}

// The propagation policy becomes a finalizer that the garbage collector serves.
func TestPropagation(t *testing.T) {
	s := apiservertest.Start(t)
	for _, test := range []struct{ name, query, body, finalizer string }{
		{name: "orphan", query: "?propagationPolicy=Orphan", finalizer: metav1.FinalizerOrphanDependents},
		{name: "foreground", query: "?propagationPolicy=Foreground", finalizer: metav1.FinalizerDeleteDependents},
		{name: "old", body: `{"kind":"DeleteOptions","apiVersion":"v1","orphanDependents":true}`, finalizer: metav1.FinalizerOrphanDependents},
		{name: "background", query: "?propagationPolicy=Background"},
	} {
		do(t, s, 201, "POST", mapsPath, configMap(test.name, "}"))
		a := do(t, s, 200, "DELETE", mapsPath+"/"+test.name+test.query, test.body)
		if test.finalizer == "" {
			if a.Kind != "Status" || a.Details.Kind != "configmaps" || a.Details.Name != test.name || a.Details.UID == "" {
				t.Errorf("%s: %+v", test.name, a)
			}
			continue
		}
		if len(a.Metadata.Finalizers) != 1 || a.Metadata.Finalizers[0] != test.finalizer || a.Metadata.DeletionTimestamp == nil {
			t.Errorf("%s: %+v", test.name, a.Metadata)
		}
	}
}

// A pod on a node goes when its kubelet says so; one without a node at once.
func TestGracefulDeletion(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", podsPath, podBody)
	if gone := do(t, s, 200, "DELETE", podsPath+"/web", ""); gone.Kind != "Pod" {
		t.Errorf("%+v", gone)
	}
	do(t, s, 404, "GET", podsPath+"/web", "")

	do(t, s, 201, "POST", podsPath, podBody)
	do(t, s, 201, "POST", podsPath+"/web/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Node","name":"one"}}`)
	going := do(t, s, 200, "DELETE", podsPath+"/web", "")
	if going.Metadata.DeletionTimestamp == nil || *going.Metadata.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("%+v", going.Metadata)
	}
	if longer := do(t, s, 200, "DELETE", podsPath+"/web?gracePeriodSeconds=60", ""); *longer.Metadata.DeletionGracePeriodSeconds != 30 {
		t.Errorf("%+v", longer.Metadata)
	}
	if shorter := do(t, s, 200, "DELETE", podsPath+"/web", `{"gracePeriodSeconds":5}`); *shorter.Metadata.DeletionGracePeriodSeconds != 5 {
		t.Errorf("%+v", shorter.Metadata)
	}
	do(t, s, 200, "DELETE", podsPath+"/web?gracePeriodSeconds=0", "")
	do(t, s, 404, "GET", podsPath+"/web", "")
}

// meddler is admission during which something else happens to the object.
type meddler struct{ meddle func(admission.Attributes) }

func (m meddler) Handles(o admission.Operation) bool { return o == admission.Delete }

func (m meddler) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	m.meddle(a)
	return nil
}

// A DELETE of a pod without a node is decided again if the pod is bound before
// the write, so that the containers get their grace period.
func TestDeletionOfWhatIsBoundMeanwhile(t *testing.T) {
	var s *apiservertest.Server
	var seen []*int64
	s = apiservertest.Start(t, func(c *apiserver.Config) {
		c.Registry.Admission = meddler{func(a admission.Attributes) {
			seen = append(seen, a.GetOperationOptions().(*metav1.DeleteOptions).GracePeriodSeconds)
			if len(seen) == 1 {
				do(t, s, 201, "POST", podsPath+"/web/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Node","name":"one"}}`)
			}
		}}
	})
	do(t, s, 201, "POST", podsPath, podBody)
	going := do(t, s, 200, "DELETE", podsPath+"/web", "")
	if grace := going.Metadata.DeletionGracePeriodSeconds; grace == nil || *grace != 30 {
		t.Errorf("the pod is given %v seconds, want 30", grace)
	}
	if len(seen) != 2 || seen[0] != nil || seen[1] != nil {
		t.Errorf("admission was shown the grace periods %v, want twice what the client sent, nothing", seen)
	}
	do(t, s, 200, "GET", podsPath+"/web", "")
}

func TestBinding(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", podsPath, podBody)
	binding := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Node","name":"one"}}`
	if a := do(t, s, 201, "POST", "/api/v1/namespaces/default/bindings", binding); a.Kind != "Status" || string(a.Status) != `"Success"` {
		t.Errorf("%+v", a)
	}
	bound := do(t, s, 200, "GET", podsPath+"/web", "")
	if !strings.Contains(string(bound.Spec), `"nodeName":"one"`) || !strings.Contains(string(bound.Status), `"type":"PodScheduled","status":"True"`) &&
		!strings.Contains(string(bound.Status), `"status":"True"`) {
		t.Errorf("%s %s", bound.Spec, bound.Status)
	}
	if message := string(mustFail(t, s, 409, "POST", podsPath+"/web/binding", binding)); !strings.Contains(message, `pod web is already assigned to node \"one\"`) {
		t.Error(message)
	}
	do(t, s, 404, "POST", podsPath+"/missing/binding", strings.ReplaceAll(binding, `"web"`, `"missing"`))
	do(t, s, 422, "POST", podsPath+"/web/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Pod"}}`)
}

// Requests for actions on pods are counted with the action's name.
func TestActionsAreCounted(t *testing.T) {
	var counted []string
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Observe = func(a apiserver.Answered) {
			if a.Known && a.Code == http.StatusCreated {
				counted = append(counted, a.Info.Resource+"/"+a.Info.Subresource)
			}
		}
	})
	for _, post := range []struct{ path, body string }{
		{podsPath, podBody},
		{podsPath + "/web/binding", `{"metadata":{"name":"web"},"target":{"name":"one"}}`},
		{podsPath + "/web/eviction", `{"metadata":{"name":"web"}}`},
	} {
		s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, post.path, strings.NewReader(post.body)))
	}
	if got := strings.Join(counted, " "); got != "pods/ pods/binding pods/eviction" {
		t.Errorf("counted %s", got)
	}
}

func TestEviction(t *testing.T) {
	s := apiservertest.Start(t)
	const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	running := func(name string) {
		do(t, s, 201, "POST", podsPath, strings.Replace(podBody, `"name":"web"`, `"name":"`+name+`","labels":{"app":"web"}`, 1))
		do(t, s, 200, "PATCH", podsPath+"/"+name+"/status", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, "Content-Type", "application/merge-patch+json")
	}
	evict := func(name string) (int, []byte, http.Header) {
		return call(t, s, "POST", podsPath+"/"+name+"/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+name+`"}}`)
	}
	running("one")
	running("two")
	running("free")
	do(t, s, 200, "PATCH", podsPath+"/free", `{"metadata":{"labels":null}}`, "Content-Type", "application/merge-patch+json")
	do(t, s, 201, "POST", budgets, `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"web"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`)
	if code, body, header := evict("one"); code != 429 || header.Get("Retry-After") != "10" || !strings.Contains(string(body), "is still being processed by the server") {
		t.Fatalf("before the controller: %d %v %s", code, header, body)
	}
	do(t, s, 200, "PATCH", budgets+"/web/status", `{"status":{"observedGeneration":1,"disruptionsAllowed":1,"desiredHealthy":1,"currentHealthy":2,"expectedPods":2}}`, "Content-Type", "application/merge-patch+json")
	if code, body, _ := evict("one"); code != 201 {
		t.Fatalf("allowed: %d %s", code, body)
	}
	do(t, s, 404, "GET", podsPath+"/one", "")
	if code, body, _ := evict("two"); code != 429 || !strings.Contains(string(body), `"reason":"DisruptionBudget","message":"The disruption budget web does not allow evicting pods currently"`) {
		t.Fatalf("used up: %d %s", code, body)
	}
	if code, body, _ := evict("free"); code != 201 {
		t.Fatalf("without a budget: %d %s", code, body)
	}
	code, body, _ := call(t, s, "POST", podsPath+"/two/eviction", `{"metadata":{"name":"two"},"deleteOptions":{"propagationPolicy":"Sideways"}}`)
	if code != 422 || !strings.Contains(string(body), `Unsupported value: \"Sideways\"`) {
		t.Errorf("odd options: %d %s", code, body)
	}
	budget := do(t, s, 200, "GET", budgets+"/web", "")
	if !strings.Contains(string(budget.Status), `"disruptionsAllowed":0`) || !strings.Contains(string(budget.Status), `"disruptedPods":{"one":`) {
		t.Errorf("%s", budget.Status)
	}
}

func TestScale(t *testing.T) {
	s := apiservertest.Start(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	do(t, s, 201, "POST", path, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"x"}]}}}}`)
	scale := do(t, s, 200, "GET", path+"/web/scale", "")
	if scale.Kind != "Scale" || scale.APIVersion != "autoscaling/v1" || string(scale.Spec) != `{"replicas":2}` || !strings.Contains(string(scale.Status), `"selector":"app=web"`) {
		t.Fatalf("%+v %s %s", scale, scale.Spec, scale.Status)
	}
	table := "application/json;as=Table;v=v1;g=meta.k8s.io"
	_, rows, _ := call(t, s, "GET", path+"/web/scale", "", "Accept", table)
	for _, want := range []string{`"kind":"Table"`, `{"name":"Desired","type":"integer"`, `"cells":["web",2,0,`, `"kind":"PartialObjectMetadata"`} {
		if !strings.Contains(string(rows), want) {
			t.Errorf("the scale as a table lacks %s: %s", want, rows)
		}
	}
	if scaled := do(t, s, 200, "PUT", path+"/web/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web"},"spec":{"replicas":3}}`); string(scaled.Spec) != `{"replicas":3}` {
		t.Errorf("%s", scaled.Spec)
	}
	for kind, patch := range map[string]string{
		"application/merge-patch+json":           `{"spec":{"replicas":4}}`,
		"application/strategic-merge-patch+json": `{"spec":{"replicas":5}}`,
		"application/json-patch+json":            `[{"op":"replace","path":"/spec/replicas","value":6}]`,
	} {
		do(t, s, 200, "PATCH", path+"/web/scale", patch, "Content-Type", kind)
	}
	do(t, s, 422, "PATCH", path+"/web/scale", `{"spec":{"replicas":-1}}`, "Content-Type", "application/merge-patch+json")
	do(t, s, 409, "PUT", path+"/web/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","resourceVersion":"1"},"spec":{"replicas":3}}`)
	deployment := do(t, s, 200, "GET", path+"/web", "")
	if deployment.Metadata.Generation != 5 {
		t.Errorf("generation %d after four changes", deployment.Metadata.Generation)
	}
}

// A write to the status leaves the spec alone, and the reverse.
func TestStatus(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", podsPath, strings.Replace(podBody, `"spec"`, `"status":{"phase":"Failed"},"spec"`, 1))
	pod := do(t, s, 200, "GET", podsPath+"/web", "")
	if !strings.Contains(string(pod.Status), `"phase":"Pending"`) {
		t.Errorf("created with a status: %s", pod.Status)
	}
	pod = do(t, s, 200, "PATCH", podsPath+"/web/status", `{"spec":{"containers":[{"name":"main","image":"other"}]},"status":{"phase":"Running"}}`, "Content-Type", "application/strategic-merge-patch+json")
	if !strings.Contains(string(pod.Status), `"phase":"Running"`) || strings.Contains(string(pod.Spec), "other") {
		t.Errorf("%s %s", pod.Spec, pod.Status)
	}
	pod = do(t, s, 200, "PATCH", podsPath+"/web", `{"spec":{"containers":[{"name":"main","image":"other"}]},"status":{"phase":"Failed"}}`, "Content-Type", "application/strategic-merge-patch+json")
	if !strings.Contains(string(pod.Status), `"phase":"Running"`) || !strings.Contains(string(pod.Spec), "other") {
		t.Errorf("%s %s", pod.Spec, pod.Status)
	}
}

// A namespace terminates: it stays until its finalizer is taken away.
func TestNamespaceDeletion(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`)
	for range 2 {
		going := do(t, s, 200, "DELETE", "/api/v1/namespaces/x", "")
		if going.Kind != "Namespace" || !strings.Contains(string(going.Status), "Terminating") || going.Metadata.DeletionTimestamp == nil {
			t.Fatalf("%+v %s", going, going.Status)
		}
	}
	do(t, s, 200, "PUT", "/api/v1/namespaces/x/finalize", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"},"spec":{"finalizers":[]}}`)
	do(t, s, 404, "GET", "/api/v1/namespaces/x", "")
}

func TestDeleteCollection(t *testing.T) {
	s := apiservertest.Start(t)
	for _, name := range []string{"a", "b", "c"} {
		do(t, s, 201, "POST", mapsPath, configMap(name, `,"labels":{"name":"`+name+`"}}`))
	}
	if list := do(t, s, 200, "DELETE", mapsPath+"?labelSelector=name+in+(a,b)", ""); list.Kind != "ConfigMapList" {
		t.Errorf("%+v", list)
	}
	if left, _ := listMaps(t, s, ""); namesOf(left) != "c" {
		t.Errorf("left: %s", namesOf(left))
	}
}

// A PUT creates what may be created that way, and only with the right to create.
func TestCreateByUpdate(t *testing.T) {
	s := apiservertest.Start(t)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x"}}`
	made := do(t, s, 201, "PUT", leases+"/x", lease)
	if made.Metadata.UID == "" {
		t.Errorf("%+v", made)
	}
	do(t, s, 422, "PUT", leases+"/x", lease)
	do(t, s, 404, "PUT", podsPath+"/web", podBody)
}

// Writers that take turns by patches lose nothing.
func TestConcurrentPatches(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", mapsPath, configMap("x", "}"))
	const writers = 20
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			code, body, _ := call(t, s, "PATCH", mapsPath+"/x", fmt.Sprintf(`{"data":{"k%d":"v"}}`, i), "Content-Type", "application/merge-patch+json")
			if code != http.StatusOK {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	wait.Wait()
	if x := do(t, s, 200, "GET", mapsPath+"/x", ""); len(x.Data) != writers {
		t.Errorf("%d of %d patches are there", len(x.Data), writers)
	}
}

func TestJSONPatchLimit(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", mapsPath, configMap("x", "}"))
	operations := strings.Repeat(`{"op":"test","path":"/metadata/name","value":"x"},`, 10001)
	a := do(t, s, 413, "PATCH", mapsPath+"/x", "["+strings.TrimSuffix(operations, ",")+"]", "Content-Type", "application/json-patch+json")
	if string(a.Status) != `"Failure"` {
		t.Errorf("%+v", a)
	}
}

func TestEventsInBothGroups(t *testing.T) {
	s := apiservertest.Start(t)
	do(t, s, 201, "POST", "/api/v1/namespaces/default/events", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"web","namespace":"default"},"reason":"Started","message":"it runs","type":"Normal"}`)
	e := do(t, s, 200, "GET", "/apis/events.k8s.io/v1/namespaces/default/events/e", "")
	if e.APIVersion != "events.k8s.io/v1" || e.Kind != "Event" {
		t.Errorf("%+v", e)
	}
	for path, want := range map[string]int{
		"/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dweb,reportingController%3D": 200,
		"/apis/events.k8s.io/v1/events?fieldSelector=involvedObject.name%3Dweb":                   400,
		"/api/v1/events?fieldSelector=involvedObject.name%3Dweb":                                  200,
		"/api/v1/events?fieldSelector=regarding.name%3Dweb":                                       400,
	} {
		code, data, _ := call(t, s, "GET", path, "")
		if code != want || code == 200 && !strings.Contains(string(data), "it runs") {
			t.Errorf("%s: %d %s", path, code, data)
		}
	}
}

// The priority classes of the system cannot be deleted one by one.
func TestSystemPriorityClassesStay(t *testing.T) {
	s := apiservertest.Start(t)
	const path = "/apis/scheduling.k8s.io/v1/priorityclasses"
	code, body, _ := call(t, s, "DELETE", path+"/system-node-critical", "")
	want := `priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted`
	if code != 403 || !strings.Contains(string(body), want) {
		t.Errorf("%d %s", code, body)
	}
	do(t, s, 201, "POST", path, `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"mine"},"value":1}`)
	do(t, s, 200, "DELETE", path+"/mine", "")
}

// TestCreateWithARevision: what upstream's store refuses comes after what
// validation refuses, and dry runs never get there.
func TestCreateWithARevision(t *testing.T) {
	s := apiservertest.Start(t)
	for _, c := range []struct {
		path, metadata string
		code           int
		says           string
	}{
		{mapsPath, `{"name":"a","resourceVersion":"7"}`, 500, "resourceVersion should not be set on objects to be created"},
		{mapsPath, `{"name":"A","resourceVersion":"7"}`, 422, "metadata.name: Invalid value"},
		{mapsPath + "?dryRun=All", `{"name":"a","resourceVersion":"7"}`, 201, ""},
		{mapsPath, `{"name":"b","resourceVersion":"0"}`, 201, ""},
		{mapsPath, `{"name":"c","resourceVersion":"-1"}`, 201, ""},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(`{"metadata":`+c.metadata+`}`))
		r.Header.Set("Content-Type", "application/json")
		s.Handler().ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || strings.Contains(w.Body.String(), `"reason":"InternalError"`) {
			t.Errorf("%s %s: %d %s", c.path, c.metadata, w.Code, w.Body)
		}
	}
}
