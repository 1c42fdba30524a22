package crd_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// converter is a conversion webhook that fails while it is broken, and counts its calls
// and the objects in them.
type converter struct {
	*httptest.Server
	broken         atomic.Bool
	calls, objects atomic.Int64
	asked          atomic.Value                                              // API version of the last review
	change         atomic.Pointer[func(*apiextensionsv1.ConversionResponse)] // changes responses
}

// newConverter starts a webhook that converts objects to an API version.
func newConverter(t *testing.T, convert func(u *unstructured.Unstructured, to string)) *converter {
	c := &converter{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.calls.Add(1)
		if c.broken.Load() {
			http.Error(w, "out to lunch", http.StatusInternalServerError)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var review apiextensionsv1.ConversionReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Error(err)
		}
		c.objects.Add(int64(len(review.Request.Objects)))
		c.asked.Store(review.APIVersion)
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal(raw.Raw, u); err != nil {
				t.Error(err)
			}
			convert(u, review.Request.DesiredAPIVersion)
			u.SetAPIVersion(review.Request.DesiredAPIVersion)
			raw.Raw, _ = json.Marshal(u)
			raw.Object = nil
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, raw)
		}
		if change := c.change.Load(); change != nil {
			(*change)(review.Response)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(c.Close)
	return c
}

// clientConfig returns the part of a definition that names the webhook.
func (c *converter) clientConfig(t *testing.T) string {
	t.Helper()
	bundle, err := json.Marshal(pemOf(c.Server))
	if err != nil {
		t.Fatal(err)
	}
	return `{"url": "` + c.URL + `", "caBundle": ` + string(bundle) + "}"
}

// conversion returns the part of a definition about conversion by the webhook.
func (c *converter) conversion(t *testing.T) string {
	t.Helper()
	return "  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: " + c.clientConfig(t) + "}}\n"
}

// wantCalls checks the calls since the last check, and the objects in them.
func (c *converter) wantCalls(t *testing.T, what string, calls, objects int64) {
	t.Helper()
	if n, asked := c.calls.Swap(0), c.objects.Swap(0); n != calls || asked != objects {
		t.Errorf("%s: %d calls of the webhook for %d objects, want %d for %d", what, n, asked, calls, objects)
	}
}

func TestWebhookConversion(t *testing.T) {
	hook := newConverter(t, func(u *unstructured.Unstructured, _ string) { u.Object["length"] = "converted" })
	c := start(t)
	ctx := t.Context()
	c.define(oars + hook.conversion(t))
	if _, err := c.kind("v1alpha1", "oars").Create(ctx, oar("v1alpha1", "left"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hook.broken.Store(true)
	if got, err := c.kind("v1", "oars").Get(ctx, "left", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "conversion webhook for example.com/v1alpha1, Kind=Oar failed") {
		t.Errorf("get with a broken webhook: %v %v", got, err)
	}
	hook.broken.Store(false)
	got, err := c.kind("v1", "oars").Get(ctx, "left", metav1.GetOptions{})
	if err != nil || got.Object["length"] != "converted" {
		t.Errorf("get: %v %v", got, err)
	}
}

// rafts have meters and no spec in v1alpha1, and centimeters and a spec in v1. Each
// version has a default that the other one prunes.
const rafts = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rafts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: rafts, kind: Raft}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    selectableFields: [{jsonPath: .length}, {jsonPath: .wood}]
    schema: {openAPIV3Schema: {type: object, properties: {length: {type: string}, logs: {type: integer}, afloat: {type: integer}, wood: {type: string, default: pine}}}}
  - name: v1
    served: true
    storage: false
    selectableFields: [{jsonPath: .length}]
    additionalPrinterColumns: [{name: Length, type: string, jsonPath: .length}]
    subresources: {status: {}, scale: {specReplicasPath: .spec.logs, statusReplicasPath: .status.afloat}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          length: {type: string}
          spec: {type: object, properties: {logs: {type: integer}, paint: {type: string, default: none}}}
          status: {type: object, properties: {afloat: {type: integer}}}
`

func convertRaft(u *unstructured.Unstructured, to string) {
	length, _, _ := unstructured.NestedString(u.Object, "length")
	switch {
	case u.GetAPIVersion() == to:
	case to == "example.com/v1":
		if meters, ok := strings.CutSuffix(length, "m"); ok {
			u.Object["length"] = meters + "00cm"
		}
		moveField(u.Object, []string{"logs"}, []string{"spec", "logs"})
		moveField(u.Object, []string{"afloat"}, []string{"status", "afloat"})
	default:
		if meters, ok := strings.CutSuffix(length, "00cm"); ok {
			u.Object["length"] = meters + "m"
		}
		moveField(u.Object, []string{"spec", "logs"}, []string{"logs"})
		moveField(u.Object, []string{"status", "afloat"}, []string{"afloat"})
	}
}

func moveField(in map[string]any, from, to []string) {
	if value, ok, _ := unstructured.NestedFieldNoCopy(in, from...); ok {
		unstructured.RemoveNestedField(in, from...)
		_ = unstructured.SetNestedField(in, value, to...)
	}
}

// startRafts starts a server with rafts, which hook converts, and returns them in
// v1alpha1 and in v1.
func startRafts(t *testing.T) (c *cluster, hook *converter, old, current dynamic.ResourceInterface) {
	t.Helper()
	hook = newConverter(t, convertRaft)
	c = start(t)
	c.define(rafts + hook.conversion(t))
	return c, hook, c.kind("v1alpha1", "rafts"), c.kind("v1", "rafts")
}

func raft(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, `{apiVersion: example.com/v1, kind: Raft, metadata: {name: `+name+`, namespace: default}, length: 200cm, spec: {logs: 3}}`)
}

// wantContent checks what an object has besides its metadata and type.
func wantContent(t *testing.T, what string, u *unstructured.Unstructured, err error, version string, want map[string]any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	got := maps.Clone(u.Object)
	delete(got, "metadata")
	delete(got, "kind")
	delete(got, "apiVersion")
	if u.GetAPIVersion() != "example.com/"+version || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %s %v, want %v in %s", what, u.GetAPIVersion(), got, want, version)
	}
}

// Every write through a version that is not the stored one answers in that version, with
// what the store keeps of it. The stored version has its defaults at once.
func TestWritesInAnotherVersion(t *testing.T) {
	_, _, old, current := startRafts(t)
	ctx := t.Context()
	inV1 := func(length string, logs int64) map[string]any {
		return map[string]any{"length": length, "spec": map[string]any{"logs": logs}}
	}

	got, err := current.Create(ctx, raft(t, "left"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	wantContent(t, "dry run", got, err, "v1", inV1("200cm", 3))
	got, err = current.Create(ctx, raft(t, "left"), metav1.CreateOptions{})
	wantContent(t, "create", got, err, "v1", inV1("200cm", 3))
	got, err = old.Get(ctx, "left", metav1.GetOptions{})
	wantContent(t, "get", got, err, "v1alpha1", map[string]any{"length": "2m", "logs": int64(3), "wood": "pine"})

	got, err = current.Get(ctx, "left", metav1.GetOptions{})
	wantContent(t, "get", got, err, "v1", inV1("200cm", 3))
	if err != nil {
		t.Fatal(err)
	}
	got.Object["length"] = "300cm"
	got, err = current.Update(ctx, got, metav1.UpdateOptions{})
	wantContent(t, "update", got, err, "v1", inV1("300cm", 3))
	got, err = current.Patch(ctx, "left", types.MergePatchType, []byte(`{"length":"200cm"}`), metav1.PatchOptions{})
	wantContent(t, "merge patch", got, err, "v1", inV1("200cm", 3))
	got, err = current.Patch(ctx, "left", types.JSONPatchType, []byte(
		`[{"op":"test","path":"/length","value":"200cm"},{"op":"replace","path":"/spec/logs","value":4}]`), metav1.PatchOptions{})
	wantContent(t, "JSON patch", got, err, "v1", inV1("200cm", 4))
	applied := raft(t, "left")
	delete(applied.Object, "spec")
	var revision string
	for range 2 {
		got, err = current.Apply(ctx, "left", applied, metav1.ApplyOptions{FieldManager: "applier"})
		wantContent(t, "apply", got, err, "v1", inV1("200cm", 4))
		if err != nil {
			t.Fatal(err)
		}
		if revision != "" && got.GetResourceVersion() != revision {
			t.Errorf("an apply that changes nothing is written: %s after %s", got.GetResourceVersion(), revision)
		}
		revision = got.GetResourceVersion()
	}

	got.Object["status"] = map[string]any{"afloat": int64(2)}
	got, err = current.UpdateStatus(ctx, got, metav1.UpdateOptions{})
	want := inV1("200cm", 4)
	want["status"] = map[string]any{"afloat": int64(2)}
	wantContent(t, "status", got, err, "v1", want)
	for _, step := range []struct {
		what     string
		replicas int64
		scale    func() (*unstructured.Unstructured, error)
	}{
		{"scale", 4, func() (*unstructured.Unstructured, error) {
			return current.Get(ctx, "left", metav1.GetOptions{}, "scale")
		}},
		{"patch of the scale", 5, func() (*unstructured.Unstructured, error) {
			return current.Patch(ctx, "left", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}, "scale")
		}},
	} {
		scale, err := step.scale()
		if err != nil {
			t.Errorf("%s: %v", step.what, err)
			continue
		}
		replicas, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas")
		afloat, _, _ := unstructured.NestedInt64(scale.Object, "status", "replicas")
		if replicas != step.replicas || afloat != 2 {
			t.Errorf("%s: %v", step.what, scale.Object)
		}
	}
	got, err = old.Get(ctx, "left", metav1.GetOptions{})
	wantContent(t, "in the end", got, err, "v1alpha1", map[string]any{"length": "2m", "logs": int64(5), "afloat": int64(2), "wood": "pine"})
}

// Field selectors of a version select by the values that the version has, in lists,
// watches and deletions.
func TestSelectionInAnotherVersion(t *testing.T) {
	c, _, old, current := startRafts(t)
	ctx := t.Context()
	short := metav1.ListOptions{FieldSelector: "length=200cm"}
	watched, err := current.Watch(ctx, short)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	if _, err := current.Create(ctx, raft(t, "left"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, watched, watch.Added, "left")
	for selector, version := range map[string]struct {
		name string
		want int
	}{"length=200cm": {"v1", 1}, "length=2m": {"v1alpha1", 1}, "length=2cm": {"v1", 0}, "length=200m": {"v1alpha1", 0}} {
		list, err := c.kind(version.name, "rafts").List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != version.want {
			t.Errorf("list of %s in %s: %v %v", selector, version.name, list, err)
		}
	}
	table, err := tableOf(c.server.Config, "rafts")
	if err != nil || len(table.Rows) != 1 || !reflect.DeepEqual(table.Rows[0].Cells, []any{"left", "200cm"}) {
		t.Errorf("table: %+v %v", table, err)
	}

	if _, err := old.Patch(ctx, "left", types.MergePatchType, []byte(`{"length":"3m"}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, watched, watch.Deleted, "left")
	if _, err := current.Create(ctx, raft(t, "right"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, watched, watch.Added, "right")
	other := types.UID("other")
	if err := current.Delete(ctx, "right", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another UID: %v", err)
	}
	if err := current.DeleteCollection(ctx, metav1.DeleteOptions{}, short); err != nil {
		t.Fatal(err)
	}
	expect(t, watched, watch.Deleted, "right")
	if list, err := current.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "left" {
		t.Errorf("left: %v %v", list, err)
	}
}

// While the webhook fails, a read in another version fails, and a watch says why it ends. It must not show the fields of
// the stored version in their place, such as no replicas at all.
func TestReadsWithABrokenWebhook(t *testing.T) {
	c, hook, old, current := startRafts(t)
	ctx := t.Context()
	if _, err := current.Create(ctx, raft(t, "left"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	known, err := current.Get(ctx, "left", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing has been shown of what comes now.
	changed, err := old.Patch(ctx, "left", types.MergePatchType, []byte(`{"logs":4}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known.SetResourceVersion(changed.GetResourceVersion())
	hook.broken.Store(true)
	for what, read := range map[string]func() error{
		"list": func() error { _, err := current.List(ctx, metav1.ListOptions{}); return err },
		"list by a field": func() error {
			_, err := current.List(ctx, metav1.ListOptions{FieldSelector: "length=9cm"})
			return err
		},
		"deletion by a field": func() error {
			return current.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "length=9cm"})
		},
		"table": func() error { _, err := tableOf(c.server.Config, "rafts"); return err },
		"scale": func() error { _, err := current.Get(ctx, "left", metav1.GetOptions{}, "scale"); return err },
		"patch of the scale": func() error {
			_, err := current.Patch(ctx, "left", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}, "scale")
			return err
		},
		"status": func() error { _, err := current.UpdateStatus(ctx, known, metav1.UpdateOptions{}); return err },
	} {
		if err := read(); err == nil || apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "conversion webhook for example.com/v1alpha1, Kind=Raft failed") {
			t.Errorf("%s: %v", what, err)
		}
	}
	watched, err := current.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	select {
	case e := <-watched.ResultChan():
		if e.Type != watch.Error || !strings.Contains(apierrors.FromObject(e.Object).Error(), "conversion webhook for example.com/v1alpha1, Kind=Raft failed") {
			t.Errorf("watch: %+v", e)
		}
	case <-time.After(patience):
		t.Error("the watch says nothing")
	}
	got, err := old.Get(ctx, "left", metav1.GetOptions{})
	wantContent(t, "the stored version", got, err, "v1alpha1", map[string]any{"length": "2m", "logs": int64(4), "wood": "pine"})
}
