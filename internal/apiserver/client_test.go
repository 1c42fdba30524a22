package apiserver_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	watchapi "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// clients returns a typed client for each media type.
func clients(t *testing.T, s *apiservertest.Server) map[string]kubernetes.Interface {
	t.Helper()
	out := map[string]kubernetes.Interface{}
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		config := rest.CopyConfig(s.Config)
		config.ContentType = media
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		out[media] = client
	}
	return out
}

func makeNamespace(t *testing.T, s *apiservertest.Server, name string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(s.Config)
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/web:1"}}},
	}
}

func TestTypedClient(t *testing.T) {
	s := apiservertest.Start(t)
	for media, client := range clients(t, s) {
		t.Run(media, func(t *testing.T) {
			ctx := t.Context()
			pods := client.CoreV1().Pods("default")
			made, err := pods.Create(ctx, newPod("web"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || made.Namespace != "default" {
				t.Fatalf("metadata is not filled in: %+v", made.ObjectMeta)
			}
			if _, err := pods.Create(ctx, newPod("web"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Fatalf("second create: %v", err)
			}
			got, err := pods.Get(ctx, "web", metav1.GetOptions{})
			if err != nil || got.UID != made.UID {
				t.Fatalf("get: %v %v", got, err)
			}
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			if err != nil || len(list.Items) != 1 || list.Items[0].Name != "web" || list.Items[0].UID != made.UID {
				t.Fatalf("list: %v %v", list, err)
			}
			got.Labels["tier"] = "front"
			updated, err := pods.Update(ctx, got, metav1.UpdateOptions{})
			if err != nil || updated.Labels["tier"] != "front" || updated.ResourceVersion == got.ResourceVersion {
				t.Fatalf("update: %v %v", updated, err)
			}
			if _, err := pods.Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Fatalf("update of an old version: %v", err)
			}
			for kind, patch := range map[types.PatchType]string{
				types.MergePatchType:          `{"metadata":{"labels":{"patch":"merge"}}}`,
				types.StrategicMergePatchType: `{"metadata":{"labels":{"patch":"strategic"}}}`,
				types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels/patch","value":"json"}]`,
			} {
				if _, err := pods.Patch(ctx, "web", kind, []byte(patch), metav1.PatchOptions{}); err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
			}
			updated.Status.Phase = corev1.PodRunning
			updated.ResourceVersion = ""
			if updated, err = pods.UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil || updated.Status.Phase != corev1.PodRunning {
				t.Fatalf("status: %v %v", updated.Status, err)
			}
			if err := pods.Delete(ctx, "web", *metav1.NewDeleteOptions(0)); err != nil {
				t.Fatal(err)
			}
			if _, err := pods.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Fatalf("get after delete: %v", err)
			}
		})
	}
}

// An informer sees every change, whatever it speaks.
func TestInformer(t *testing.T) {
	s := apiservertest.Start(t)
	for media, client := range clients(t, s) {
		t.Run(media, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			namespace := "informer-" + media[len("application/"):][:3]
			makeNamespace(t, s, namespace)
			if _, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
			events := make(chan string, 10)
			note := func(what string, obj any) {
				if m, ok := obj.(*corev1.ConfigMap); ok {
					events <- what + " " + m.Name
				}
			}
			_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc:    func(obj any) { note("added", obj) },
				UpdateFunc: func(_, obj any) { note("updated", obj) },
				DeleteFunc: func(obj any) { note("deleted", obj) },
			})
			if err != nil {
				t.Fatal(err)
			}
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			defer factory.Shutdown()
			defer cancel()
			expect := func(want string) {
				t.Helper()
				select {
				case got := <-events:
					if got != want {
						t.Fatalf("got %q, want %q", got, want)
					}
				case <-ctx.Done():
					t.Fatalf("%q did not come", want)
				}
			}
			expect("added before")
			maps := client.CoreV1().ConfigMaps(namespace)
			made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			expect("added after")
			made.Data = map[string]string{"a": "b"}
			if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			expect("updated after")
			if err := maps.Delete(ctx, "after", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			expect("deleted after")
		})
	}
}

// A Namespace's path names it twice over, as object and as namespace.
func TestNamespaceIsFoundByItsName(t *testing.T) {
	s := apiservertest.Start(t)
	makeNamespace(t, s, "team")
	namespaces := kubernetes.NewForConfigOrDie(s.Config).CoreV1().Namespaces()
	got, err := namespaces.Get(t.Context(), "team", metav1.GetOptions{})
	if err != nil || got.Name != "team" {
		t.Fatalf("get: %v, %v", got, err)
	}
	got.Labels["a"] = "b"
	if _, err := namespaces.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update: %v", err)
	}
	patched, err := namespaces.Patch(t.Context(), "team", types.MergePatchType, []byte(`{"metadata":{"labels":{"c":"d"}}}`), metav1.PatchOptions{})
	if err != nil || patched.Labels["a"] != "b" || patched.Labels["c"] != "d" {
		t.Errorf("patch: %v, %v", patched, err)
	}
	w, err := namespaces.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=team"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Object.(*corev1.Namespace).Name != "team" {
		t.Errorf("watch: %v", event)
	}
}

// The dynamic client, which speaks JSON and knows no types, sees the same.
func TestDynamicClient(t *testing.T) {
	s := apiservertest.Start(t)
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	leases := client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace("default")
	watching, err := leases.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	lease := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "x"},
		"spec": map[string]any{"holderIdentity": "me", "leaseDurationSeconds": int64(15)},
	}}
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-watching.ResultChan(); e.Type != watchapi.Added || e.Object.(*unstructured.Unstructured).GetName() != "x" {
		t.Errorf("%+v", e)
	}
	list, err := leases.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "LeaseList" {
		t.Errorf("%v %v", list, err)
	}
	if err := leases.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if e := <-watching.ResultChan(); e.Type != watchapi.Deleted {
		t.Errorf("%+v", e)
	}
}
