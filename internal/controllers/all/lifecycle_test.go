package all_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// lifecycle describes the objects of a resource for TestLifecycles.
type lifecycle struct {
	resource schema.GroupVersionResource
	kind     string
	cluster  bool   // the objects have no namespace
	fields   string // what an object has besides its metadata
	status   string // a change of the status, "" if the resource has none
	shown    string // part of the changed status
}

// lifecycles returns the resources of controllers and of storage. Nothing runs for their objects.
func lifecycles() []lifecycle {
	const (
		template    = `"template": {"metadata": {"labels": {"app": "none"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}`
		workload    = `{"spec": {"replicas": 0, "serviceName": "none", "selector": {"matchLabels": {"app": "none"}}, ` + template + `}}`
		work        = `{"metadata": {"labels": {"app": "none"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}`
		conditions  = `{"conditions": [{"type": "Changed", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}`
		hasChanged  = `"type":"Changed"`
		claim       = `{"spec": {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}`
		volume      = `{"spec": {"storageClassName": "other", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/none"}, "persistentVolumeReclaimPolicy": "Retain"}}`
		storageName = "storage.k8s.io"
	)
	withoutName := strings.Replace(workload, `"serviceName": "none", `, "", 1)
	of := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	return []lifecycle{
		{of("apps", "v1", "controllerrevisions"), "ControllerRevision", false, `{"revision": 1, "data": {"a": "b"}}`, "", ""},
		{of("apps", "v1", "deployments"), "Deployment", false, withoutName, conditions, hasChanged},
		{of("apps", "v1", "replicasets"), "ReplicaSet", false, withoutName, conditions, hasChanged},
		{of("apps", "v1", "statefulsets"), "StatefulSet", false, workload, conditions, hasChanged},
		{of("apps", "v1", "daemonsets"), "DaemonSet", false, strings.NewReplacer(`"replicas": 0, `, "", `"spec": {"containers"`, `"spec": {"nodeSelector": {"no": "node"}, "containers"`).Replace(withoutName), conditions, hasChanged},
		{of("", "v1", "replicationcontrollers"), "ReplicationController", false, `{"spec": {"replicas": 0, "selector": {"app": "none"}, ` + template + `}}`, conditions, hasChanged},
		{of("batch", "v1", "jobs"), "Job", false, `{"spec": {"suspend": true, "template": ` + work + `}}`, conditions, hasChanged},
		{of("batch", "v1", "cronjobs"), "CronJob", false, `{"spec": {"suspend": true, "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": ` + work + `}}}}`,
			`{"lastScheduleTime": "2026-01-01T00:00:00Z"}`, `"lastScheduleTime":"2026-01-01T00:00:00Z"`},
		{of("policy", "v1", "poddisruptionbudgets"), "PodDisruptionBudget", false, `{"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "none"}}}}`, conditions, hasChanged},
		{of("", "v1", "resourcequotas"), "ResourceQuota", false, `{"spec": {"hard": {"pods": "50"}}}`, `{"hard": {"pods": "60"}}`, `"pods":"60"`},
		{of("", "v1", "persistentvolumeclaims"), "PersistentVolumeClaim", false, claim, conditions, hasChanged},
		{of("", "v1", "persistentvolumes"), "PersistentVolume", true, volume, `{"message": "Changed", "reason": "Test"}`, `"message":"Changed"`},
		{of(storageName, "v1", "csidrivers"), "CSIDriver", true, `{"spec": {}}`, "", ""},
		{of(storageName, "v1", "csinodes"), "CSINode", true, `{"spec": {"drivers": []}}`, "", ""},
		{of(storageName, "v1", "volumeattachments"), "VolumeAttachment", true, `{"spec": {"attacher": "none.example", "nodeName": "none", "source": {"persistentVolumeName": "none"}}}`,
			`{"attached": true}`, `"attached":true`},
	}
}

// TestLifecycles does with each resource what the conformance tests of its API require: objects are
// created, listed in all namespaces, watched, patched, updated, also their status, and deleted
// as a collection, while the controllers run.
func TestLifecycles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.Start(t, cluster.Options{InProcess: true})
		setUpShop(t, c.Client())
		config := rest.CopyConfig(c.Config())
		config.QPS = -1
		objects, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lifecycles() {
			l.run(t, objects.Resource(l.resource))
		}
	})
}

func (l lifecycle) run(t *testing.T, all dynamic.NamespaceableResourceInterface) {
	t.Helper()
	ctx, selected := t.Context(), metav1.ListOptions{LabelSelector: "lifecycle=yes"}
	var own dynamic.ResourceInterface = all
	if !l.cluster {
		own = all.Namespace("shop")
	}
	for _, name := range []string{"first", "second"} {
		_, err := own.Create(ctx, l.object(t, name), metav1.CreateOptions{})
		l.check(t, "create", err)
	}
	list, err := all.List(ctx, selected)
	l.check(t, "list", err)
	if len(list.Items) != 2 {
		t.Errorf("%d %s are listed", len(list.Items), l.resource.Resource)
	}
	changes, err := all.Watch(ctx, metav1.ListOptions{LabelSelector: selected.LabelSelector, ResourceVersion: list.GetResourceVersion()})
	l.check(t, "watch", err)
	defer changes.Stop()

	patched, err := own.Patch(ctx, "first", types.MergePatchType, []byte(`{"metadata": {"labels": {"patched": "yes"}}}`), metav1.PatchOptions{})
	l.check(t, "patch", err)
	if patched.GetLabels()["patched"] != "yes" {
		t.Errorf("%s: patched to %v", l.resource.Resource, patched.GetLabels())
	}
	updated := l.update(t, own, func(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return own.Update(ctx, o, metav1.UpdateOptions{})
	})
	if updated.GetAnnotations()["updated"] != "yes" {
		t.Errorf("%s: updated to %v", l.resource.Resource, updated.GetAnnotations())
	}
	if l.status != "" {
		l.changeStatus(t, own)
	}
	l.check(t, "delete", own.DeleteCollection(ctx, metav1.DeleteOptions{}, selected))
	l.follow(t, changes)
	controllertest.Eventually(t, func() int {
		list, err := all.List(ctx, selected)
		l.check(t, "list", err)
		return len(list.Items)
	}, 0)
}

// object returns an object to create.
func (l lifecycle) object(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	l.check(t, "read", json.Unmarshal([]byte(l.fields), &o.Object))
	o.SetAPIVersion(l.resource.GroupVersion().String())
	o.SetKind(l.kind)
	o.SetName(name)
	o.SetLabels(map[string]string{"lifecycle": "yes"})
	return o
}

func (l lifecycle) check(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s %s: %v", what, l.resource.Resource, err)
	}
}

// update adds an annotation to the first object, and writes it.
func (l lifecycle) update(t *testing.T, own dynamic.ResourceInterface, write func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error)) (updated *unstructured.Unstructured) {
	t.Helper()
	l.check(t, "update", retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the controllers write, too
		o, err := own.Get(t.Context(), "first", metav1.GetOptions{})
		if err != nil {
			return err
		}
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["updated"] = "yes"
		o.SetAnnotations(annotations)
		updated, err = write(t.Context(), o)
		return err
	}))
	return updated
}

// changeStatus patches, reads and updates the status of the first object.
func (l lifecycle) changeStatus(t *testing.T, own dynamic.ResourceInterface) {
	t.Helper()
	patched, err := own.Patch(t.Context(), "first", types.MergePatchType, []byte(`{"status": `+l.status+`}`), metav1.PatchOptions{}, "status")
	l.check(t, "patch the status of", err)
	status, err := json.Marshal(patched.Object["status"])
	l.check(t, "write the status of", err)
	if !strings.Contains(string(status), l.shown) {
		t.Errorf("%s: the status is patched to %s", l.resource.Resource, status)
	}
	read, err := own.Get(t.Context(), "first", metav1.GetOptions{}, "status")
	l.check(t, "get the status of", err)
	if read.GetUID() != patched.GetUID() {
		t.Errorf("%s: the status is of %s, want %s", l.resource.Resource, read.GetUID(), patched.GetUID())
	}
	l.update(t, own, func(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return own.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	})
}

// follow reads the changes until both objects are deleted. The patched object is among them.
func (l lifecycle) follow(t *testing.T, changes watch.Interface) {
	t.Helper()
	var modified, deleted []string
	late := time.After(time.Hour) // of the bubble
	for len(deleted) < 2 {
		select {
		case e, ok := <-changes.ResultChan():
			o, isObject := e.Object.(*unstructured.Unstructured)
			if !ok || !isObject {
				t.Fatalf("%s: the watch ended with %v", l.resource.Resource, e.Object)
			}
			switch {
			case e.Type == watch.Deleted:
				deleted = append(deleted, o.GetName())
			case e.Type == watch.Modified && o.GetLabels()["patched"] == "yes":
				modified = append(modified, o.GetName())
			}
		case <-late:
			t.Fatalf("%s: deleted %v", l.resource.Resource, deleted)
		}
	}
	if !slices.Contains(modified, "first") {
		t.Errorf("%s: no event of the patch", l.resource.Resource)
	}
}

// TestNamespaceEndpoints patches, updates and finalizes a namespace, and changes its status. A
// finalizer that is not the controller's keeps it.
func TestNamespaceEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		ctx, api := t.Context(), c.CoreV1().Namespaces()
		check := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		_, err := api.Patch(ctx, "shop", types.StrategicMergePatchType, []byte(`{"metadata": {"labels": {"patched": "yes"}}}`), metav1.PatchOptions{})
		check("patch", err)
		_, err = api.Patch(ctx, "shop", types.MergePatchType, []byte(`{"status": {"conditions": [{"type": "Patched", "status": "True", "reason": "Test", "message": "by a test"}]}}`), metav1.PatchOptions{}, "status")
		check("patch the status", err)
		change := func(write func(*v1.Namespace) error) {
			t.Helper()
			check("update", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				ns, err := api.Get(ctx, "shop", metav1.GetOptions{})
				if err != nil {
					return err
				}
				return write(ns)
			}))
		}
		change(func(ns *v1.Namespace) error {
			ns.Labels["updated"] = "yes"
			_, err := api.Update(ctx, ns, metav1.UpdateOptions{})
			return err
		})
		change(func(ns *v1.Namespace) error {
			ns.Status.Conditions = append(ns.Status.Conditions, v1.NamespaceCondition{Type: "Updated", Status: v1.ConditionTrue, Reason: "Test", Message: "by a test"})
			_, err := api.UpdateStatus(ctx, ns, metav1.UpdateOptions{})
			return err
		})
		const held = "example.com/held"
		change(func(ns *v1.Namespace) error {
			ns.Spec.Finalizers = append(ns.Spec.Finalizers, held)
			_, err := api.Finalize(ctx, ns, metav1.UpdateOptions{})
			return err
		})
		ns, err := api.Get(ctx, "shop", metav1.GetOptions{})
		check("get", err)
		var conditions []string
		for _, condition := range ns.Status.Conditions {
			conditions = append(conditions, string(condition.Type))
		}
		if !slices.Equal(conditions, []string{"Patched", "Updated"}) || ns.Labels["patched"]+ns.Labels["updated"] != "yesyes" {
			t.Errorf("labels %v, conditions %v", ns.Labels, conditions)
		}
		check("delete", api.Delete(ctx, "shop", metav1.DeleteOptions{}))
		controllertest.Eventually(t, func() string {
			ns, err := api.Get(ctx, "shop", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			finalizers := make([]string, len(ns.Spec.Finalizers))
			for i, f := range ns.Spec.Finalizers {
				finalizers[i] = string(f)
			}
			return string(ns.Status.Phase) + " " + strings.Join(finalizers, " ")
		}, "Terminating "+held)
		change(func(ns *v1.Namespace) error {
			ns.Spec.Finalizers = nil
			_, err := api.Finalize(ctx, ns, metav1.UpdateOptions{})
			return err
		})
		controllertest.Eventually(t, func() string {
			if _, err := api.Get(ctx, "shop", metav1.GetOptions{}); err != nil {
				return err.Error()
			}
			return "it is there"
		}, `namespaces "shop" not found`)
	})
}
