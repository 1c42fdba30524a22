package clientgo

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func TestDynamicClient(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	d, err := dynamic.NewForConfig(restConfig)
	must(t, err)
	maps := d.Resource(configMaps).Namespace(newNamespace(t, c))

	w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "seen=yes"})
	must(t, err)
	defer w.Stop()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a", "labels": map[string]any{"seen": "yes"}},
		"data":     map[string]any{"k": "1"},
	}}
	_, err = maps.Create(ctx, u, metav1.CreateOptions{})
	must(t, err)
	_, err = maps.Create(ctx, u, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v, want AlreadyExists", err)
	}
	patched, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"2"}}`), metav1.PatchOptions{})
	must(t, err)
	if v, _, _ := unstructured.NestedString(patched.Object, "data", "k"); v != "2" {
		t.Errorf("patched: %v", patched.Object)
	}
	_, err = maps.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"seen":null}}}`), metav1.PatchOptions{})
	must(t, err)
	applied, err := maps.Apply(ctx, "b", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b"}, "data": map[string]any{"x": "y"},
	}}, metav1.ApplyOptions{FieldManager: "tests"})
	must(t, err)
	if fields := applied.GetManagedFields(); len(fields) != 1 || fields[0].Manager != "tests" || fields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managers: %v", fields)
	}
	must(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=b"}))
	list, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].GetName() != "a" || list.GetResourceVersion() == "" {
		t.Errorf("list: %v", list)
	}

	var got []string
	for event := range w.ResultChan() {
		got = append(got, fmt.Sprint(event.Type, " ", event.Object.(*unstructured.Unstructured).GetName()))
		if event.Type == watch.Deleted {
			break
		}
	}
	if want := "[ADDED a MODIFIED a DELETED a]"; fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}
}

func TestMetadataClient(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	d, err := c.AppsV1().Deployments(ns).Create(ctx, deployment("web", 0), metav1.CreateOptions{})
	must(t, err)
	m, err := metadata.NewForConfig(restConfig)
	must(t, err)
	resource := m.Resource(deployments).Namespace(ns)

	got, err := resource.Get(ctx, "web", metav1.GetOptions{})
	must(t, err)
	if got.UID != d.UID || got.Generation != 1 {
		t.Errorf("got %+v, want the metadata of %s", got.ObjectMeta, d.UID)
	}
	w, err := resource.Watch(ctx, metav1.ListOptions{LabelSelector: "by=metadata"})
	must(t, err)
	defer w.Stop()
	_, err = resource.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"by":"metadata"}}}`), metav1.PatchOptions{})
	must(t, err)
	event := <-w.ResultChan()
	if seen, ok := event.Object.(*metav1.PartialObjectMetadata); !ok || event.Type != watch.Added || seen.Labels["by"] != "metadata" {
		t.Errorf("event %s %T", event.Type, event.Object)
	}
	list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: "by=metadata"})
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].UID != d.UID {
		t.Errorf("list: %d items", len(list.Items))
	}
	must(t, resource.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &d.UID}}))
}

// TestContentTypes reads and writes the same objects in protobuf and JSON.
func TestContentTypes(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	for _, kind := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		config := rest.CopyConfig(restConfig)
		config.AcceptContentTypes, config.ContentType = kind, kind
		other := newClientFor(t, config)
		name := "json"
		if kind == runtime.ContentTypeProtobuf {
			name = "protobuf"
		}
		made, err := other.CoreV1().ConfigMaps(ns).Create(ctx, configMap(name, map[string]string{"k": "v"}), metav1.CreateOptions{})
		must(t, err)
		read, err := c.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		if read.ResourceVersion != made.ResourceVersion || read.Data["k"] != "v" {
			t.Errorf("%s: wrote %v, read %v", kind, made, read)
		}
		list, err := other.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		must(t, err)
		if len(list.Items) < 1 {
			t.Errorf("%s: an empty list", kind)
		}
	}
}

// TestPages reads a list page by page, all at the revision of the first page.
func TestPages(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	maps := c.CoreV1().ConfigMaps(newNamespace(t, c))
	const count = 25
	for i := range count {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("page-%02d", i), Labels: map[string]string{"paged": "yes"},
		}}, metav1.CreateOptions{})
		must(t, err)
	}
	p := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		list, err := maps.List(ctx, options)
		if err == nil && options.Continue == "" {
			err = maps.Delete(ctx, "page-24", metav1.DeleteOptions{})
		}
		return list, err
	}))
	p.PageSize = 10
	seen := 0
	must(t, p.EachListItem(ctx, metav1.ListOptions{LabelSelector: "paged=yes"}, func(runtime.Object) error { seen++; return nil }))
	if seen != count {
		t.Errorf("%d items on all pages, want the %d at the revision of the first page", seen, count)
	}
}
