package crd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

const fleetSize = 20

// newFleet stores rafts in v1alpha1, of which a webhook converts none.
func newFleet(t *testing.T, c *cluster, hook *converter) (old, current dynamic.ResourceInterface) {
	t.Helper()
	c.define(rafts + hook.conversion(t))
	old, current = c.kind("v1alpha1", "rafts"), c.kind("v1", "rafts")
	for i := range fleetSize {
		raft := object(t, `{apiVersion: example.com/v1alpha1, kind: Raft, metadata: {name: `+raftName(i)+`, namespace: default}, length: 2m, logs: 3}`)
		if _, err := old.Create(t.Context(), raft, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	latest(t, old)
	hook.wantCalls(t, "objects of the stored version", 0, 0)
	return old, current
}

func raftName(i int) string { return fmt.Sprintf("raft%02d", i) }

// latest waits until the watch cache has all writes, and returns the revision.
func latest(t *testing.T, stored dynamic.ResourceInterface) string {
	t.Helper()
	list, err := stored.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetResourceVersion()
}

func patchRaft(t *testing.T, rafts dynamic.ResourceInterface, name, patch string) {
	t.Helper()
	if _, err := rafts.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// counted returns an error unless a list has so many objects in v1.
func counted(list *unstructured.UnstructuredList, err error) error {
	if err != nil {
		return err
	}
	for i := range list.Items {
		if u := &list.Items[i]; u.GetAPIVersion() != "example.com/v1" || u.GetName() != raftName(i) || u.Object["length"] != "200cm" {
			return fmt.Errorf("object %d is %v", i, u.Object)
		}
	}
	if len(list.Items) != fleetSize {
		return fmt.Errorf("%d objects", len(list.Items))
	}
	return nil
}

// watchedAll returns an error unless a new watch begins with all rafts.
func watchedAll(t *testing.T, rafts dynamic.ResourceInterface, options metav1.ListOptions) error {
	w, err := rafts.Watch(t.Context(), options)
	if err != nil {
		return err
	}
	defer w.Stop()
	for range fleetSize {
		select {
		case e := <-w.ResultChan():
			if e.Type != watch.Added {
				return fmt.Errorf("event %+v", e)
			}
		case <-time.After(patience):
			return fmt.Errorf("too few events")
		}
	}
	return nil
}

// A read of several objects in another version asks the webhook once for all of them, and
// no other read asks again.
func TestOneCallForAList(t *testing.T) {
	byLength := metav1.ListOptions{FieldSelector: "length=200cm"}
	reads := map[string]func(t *testing.T, c *cluster) error{
		"list": func(t *testing.T, c *cluster) error {
			return counted(c.kind("v1", "rafts").List(t.Context(), metav1.ListOptions{}))
		},
		"list by a field": func(t *testing.T, c *cluster) error {
			return counted(c.kind("v1", "rafts").List(t.Context(), byLength))
		},
		"table": func(_ *testing.T, c *cluster) error {
			table, err := tableOf(c.server.Config, "rafts")
			if err == nil && (len(table.Rows) != fleetSize || table.Rows[0].Cells[1] != "200cm") {
				err = fmt.Errorf("rows %+v", table.Rows)
			}
			return err
		},
		"watch": func(t *testing.T, c *cluster) error {
			return watchedAll(t, c.kind("v1", "rafts"), metav1.ListOptions{})
		},
		"watch by a field": func(t *testing.T, c *cluster) error {
			return watchedAll(t, c.kind("v1", "rafts"), byLength)
		},
	}
	for first, read := range reads {
		t.Run(first, func(t *testing.T) {
			hook := newConverter(t, convertRaft)
			c := start(t)
			_, current := newFleet(t, c, hook)
			if err := read(t, c); err != nil {
				t.Error(err)
			}
			hook.wantCalls(t, first, 1, fleetSize)
			for next, read := range reads {
				if err := read(t, c); err != nil {
					t.Errorf("%s: %v", next, err)
				}
				hook.wantCalls(t, next, 0, 0)
			}
			for what, subresources := range map[string][]string{"get": nil, "scale": {"scale"}} {
				if _, err := current.Get(t.Context(), raftName(0), metav1.GetOptions{}, subresources...); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				hook.wantCalls(t, what, 0, 0)
			}
			page, err := current.List(t.Context(), metav1.ListOptions{Limit: 5})
			if err != nil || len(page.Items) != 5 {
				t.Errorf("page: %v %v", page, err)
			}
			hook.wantCalls(t, "page", 0, 0)
		})
	}
}

// Metadata alone needs no webhook, so that the garbage collector and the deletion of
// namespaces do not depend on it.
func TestMetadataNeedsNoWebhook(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	newFleet(t, c, hook)
	hook.broken.Store(true)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.server.Config.Host+"/apis/example.com/v1/namespaces/default/rafts", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	list := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(body, list); err != nil || len(list.Items) != fleetSize {
		t.Errorf("%s: %v", body, err)
	}
	hook.wantCalls(t, "metadata", 0, 0)
}

// All watches of a version share the conversion of a change.
func TestOneCallForAnEvent(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	ctx := t.Context()
	old, current := newFleet(t, c, hook)
	if err := counted(current.List(ctx, metav1.ListOptions{})); err != nil {
		t.Fatal(err)
	}
	hook.wantCalls(t, "list", 1, fleetSize)
	open := func(fields string) watch.Interface {
		w, err := current.Watch(ctx, metav1.ListOptions{ResourceVersion: latest(t, old), FieldSelector: fields})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	all := []watch.Interface{open(""), open(""), open("")}
	short := []watch.Interface{open("length=200cm"), open("length=200cm")}
	expectAll := func(watches []watch.Interface, kind watch.EventType) {
		t.Helper()
		for _, w := range watches {
			expect(t, w, kind, "raft00")
		}
	}

	patchRaft(t, old, "raft00", `{"logs":9}`)
	expectAll(all, watch.Modified)
	expectAll(short, watch.Modified)
	hook.wantCalls(t, "a change", 1, 1)
	patchRaft(t, old, "raft00", `{"length":"3m"}`)
	expectAll(all, watch.Modified)
	for _, w := range short {
		select {
		case e := <-w.ResultChan():
			u, _ := e.Object.(*unstructured.Unstructured)
			if e.Type != watch.Deleted || u == nil || u.Object["length"] != "200cm" || u.GetAPIVersion() != "example.com/v1" {
				t.Errorf("left: %+v", e)
			}
		case <-time.After(patience):
			t.Error("the watch does not say that the object left")
		}
	}
	hook.wantCalls(t, "a change that leaves a selection", 1, 1)
	if err := old.Delete(ctx, "raft00", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectAll(all, watch.Deleted)
	hook.wantCalls(t, "a deletion", 1, 1)
}

// A write in another version asks the webhook to convert what is stored, and what the
// store keeps of it for the response. What was there before has been converted already.
func TestCallsOfWrites(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	ctx := t.Context()
	c.define(rafts + hook.conversion(t))
	old, current := c.kind("v1alpha1", "rafts"), c.kind("v1", "rafts")
	var left *unstructured.Unstructured
	for _, step := range []struct {
		what  string
		write func() error
	}{
		{"create", func() (err error) {
			left, err = current.Create(ctx, raft(t, "left"), metav1.CreateOptions{})
			return err
		}},
		{"update", func() (err error) {
			left.Object["length"] = "300cm"
			left, err = current.Update(ctx, left, metav1.UpdateOptions{})
			return err
		}},
		{"patch", func() (err error) {
			left, err = current.Patch(ctx, "left", types.MergePatchType, []byte(`{"length":"400cm"}`), metav1.PatchOptions{})
			return err
		}},
		{"status", func() (err error) {
			left.Object["status"] = map[string]any{"afloat": int64(2)}
			left, err = current.UpdateStatus(ctx, left, metav1.UpdateOptions{})
			return err
		}},
		{"scale", func() error {
			_, err := current.Patch(ctx, "left", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}, "scale")
			return err
		}},
		{"apply", func() error {
			_, err := current.Apply(ctx, "left", object(t, `{apiVersion: example.com/v1, kind: Raft, metadata: {name: left}, spec: {paint: red}}`), metav1.ApplyOptions{FieldManager: "painter", Force: true})
			return err
		}},
	} {
		if err := step.write(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		hook.wantCalls(t, step.what, 2, 2)
		latest(t, old)
		got, err := current.Get(ctx, "left", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("get after %s: %v", step.what, err)
		}
		left = got
		hook.wantCalls(t, "get after "+step.what, 0, 0)
	}
}

// A failure of the webhook is not kept, nor does what it said outlast its place in the definition.
func TestWebhookIsAskedAgain(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	ctx := t.Context()
	_, current := newFleet(t, c, hook)
	hook.broken.Store(true)
	for range 2 {
		if list, err := current.List(ctx, metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "conversion webhook for example.com/v1alpha1, Kind=Raft failed") {
			t.Errorf("list with a broken webhook: %v %v", list, err)
		}
		hook.wantCalls(t, "broken", 1, 0)
	}
	hook.broken.Store(false)
	if err := counted(current.List(ctx, metav1.ListOptions{})); err != nil {
		t.Error(err)
	}
	hook.wantCalls(t, "mended", 1, fleetSize)

	second := newConverter(t, func(u *unstructured.Unstructured, _ string) { u.Object["length"] = "unknown" })
	patch := `[{"op":"replace","path":"/spec/conversion/webhook/clientConfig","value":` + second.clientConfig(t) + `}]`
	if _, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, "rafts.example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		list, err := current.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if list.Items[0].Object["length"] == "unknown" {
			break
		}
	}
	second.wantCalls(t, "the second webhook", 1, fleetSize)
}

// The watch cache, which all kinds share, needs no webhook for objects that were stored in
// an older version. A field selector asks for all of them at once.
func TestStoredVersionChangesWithoutWebhook(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	ctx := t.Context()
	_, current := newFleet(t, c, hook)
	hook.broken.Store(true)
	if _, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, "rafts.example.com", types.JSONPatchType, []byte(`[
		{"op":"replace","path":"/spec/versions/0/storage","value":false},
		{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := int64(0) // creations while v1alpha1 was still stored, each after one call
	for {
		_, err := current.Create(ctx, raft(t, "left"), metav1.CreateOptions{})
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "conversion webhook") {
			t.Fatal(err)
		}
		refused++
	}
	hook.wantCalls(t, "change of the stored version", refused, 0)
	hook.broken.Store(false)
	list, err := current.List(ctx, metav1.ListOptions{FieldSelector: "length=200cm"})
	if err != nil || len(list.Items) != fleetSize+1 {
		t.Errorf("list: %v %v", list, err)
	}
	hook.wantCalls(t, "list", 1, fleetSize)
}

// measured returns how many calls of the webhook for rafts the metrics have.
func (c *cluster) measured(succeeded string) uint64 {
	c.Helper()
	families, err := c.counts.Gather()
	if err != nil {
		c.Fatal(err)
	}
	want := map[string]string{"crd_name": "rafts.example.com", "from_version": "v1alpha1", "to_version": "v1", "succeeded": succeeded}
	for _, f := range families {
		if f.GetName() != "apiserver_crd_conversion_webhook_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if maps.Equal(labels, want) {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}

// The calls for lists are measured by the versions that the objects have.
func TestConversionsAreMeasured(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	_, current := newFleet(t, c, hook)
	failed, succeeded := c.measured("false"), c.measured("true")
	hook.broken.Store(true)
	_, _ = current.List(t.Context(), metav1.ListOptions{})
	hook.broken.Store(false)
	for range 2 {
		if err := counted(current.List(t.Context(), metav1.ListOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	if f, s := c.measured("false")-failed, c.measured("true")-succeeded; f != 1 || s != 1 {
		t.Errorf("%d failures and %d successes, want one each", f, s)
	}
}

// edit returns a change of one converted object of a response.
func edit(i int, change func(u *unstructured.Unstructured)) func(*apiextensionsv1.ConversionResponse) {
	return func(r *apiextensionsv1.ConversionResponse) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(r.ConvertedObjects[i].Raw) == nil {
			change(u)
			r.ConvertedObjects[i].Raw, _ = u.MarshalJSON()
		}
	}
}

// A list fails if the webhook mixes up the objects, or changes what identifies them.
func TestWrongAnswersToAList(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	ctx := t.Context()
	c.define(rafts + hook.conversion(t))
	current := c.kind("v1", "rafts")
	for _, name := range []string{"left", "right"} {
		if _, err := c.kind("v1alpha1", "rafts").Create(ctx, object(t, `{apiVersion: example.com/v1alpha1, kind: Raft, metadata: {name: `+name+`, namespace: default, finalizers: [example.com/moored]}, length: 2m}`), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const prefix = "conversion webhook for example.com/v1alpha1, Kind=Raft "
	for want, change := range map[string]func(*apiextensionsv1.ConversionResponse){
		"failed: no such wood": func(r *apiextensionsv1.ConversionResponse) {
			r.Result = metav1.Status{Status: metav1.StatusFailure, Message: "no such wood"}
		},
		"failed: response.result.status was '', not 'Success'": func(r *apiextensionsv1.ConversionResponse) { r.Result = metav1.Status{} },
		`failed: expected response.uid="`:                      func(r *apiextensionsv1.ConversionResponse) { r.UID = "other" },
		"returned 1 objects, expected 2":                       func(r *apiextensionsv1.ConversionResponse) { r.ConvertedObjects = r.ConvertedObjects[:1] },
		"returned invalid converted object at index 0: must have the same name: left != right": func(r *apiextensionsv1.ConversionResponse) {
			r.ConvertedObjects[0], r.ConvertedObjects[1] = r.ConvertedObjects[1], r.ConvertedObjects[0]
		},
		"returned invalid converted object at index 1: must have the same name: right != other":      edit(1, func(u *unstructured.Unstructured) { u.SetName("other") }),
		"returned invalid converted object at index 1: must have the same namespace: default != sea": edit(1, func(u *unstructured.Unstructured) { u.SetNamespace("sea") }),
		"returned invalid converted object at index 1: must have the same UID: ":                     edit(1, func(u *unstructured.Unstructured) { u.SetUID("other") }),
		"returned invalid converted object at index 1: invalid kind (expected Raft, received Boat)":  edit(1, func(u *unstructured.Unstructured) { u.SetKind("Boat") }),
		"returned invalid converted object at index 1: invalid groupVersion (expected example.com/v1, received example.com/v1alpha1)": edit(1, func(u *unstructured.Unstructured) {
			u.SetAPIVersion("example.com/v1alpha1")
		}),
	} {
		hook.change.Store(&change)
		if list, err := current.List(ctx, metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), prefix+want) {
			t.Errorf("want %s\ngot  %v %v", want, err, list)
		}
	}

	change := edit(1, func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"made": "there"})
		u.SetFinalizers(nil)
		u.SetGeneration(7)
		u.SetResourceVersion("0")
	})
	hook.change.Store(&change)
	list, err := current.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatal(list, err)
	}
	if u := list.Items[1]; u.GetLabels()["made"] != "there" || len(u.GetFinalizers()) != 1 || u.GetGeneration() != 1 || u.GetResourceVersion() == "0" {
		t.Errorf("metadata: %v", u.Object["metadata"])
	}
	table, err := tableOf(c.server.Config, "rafts")
	if err != nil {
		t.Fatal(err)
	}
	shown := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(table.Rows[1].Object.Raw, shown); err != nil || shown.Labels["made"] != "there" {
		t.Errorf("metadata in the table: %s %v", table.Rows[1].Object.Raw, err)
	}
}

// The webhook gets the first version of reviews in the definition's list that is known.
func TestReviewVersions(t *testing.T) {
	hook := newConverter(t, convertRaft)
	c := start(t)
	c.define(rafts + strings.Replace(hook.conversion(t), "[v1]", "[v2, v1beta1, v1]", 1))
	if _, err := c.kind("v1", "rafts").Create(t.Context(), raft(t, "left"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := hook.asked.Load(); got != "apiextensions.k8s.io/v1beta1" {
		t.Errorf("asked in %v", got)
	}
}
