package controllerruntime

import (
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

func configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

// deployment returns a Deployment whose pods are never run.
func deployment(namespace, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
			},
		},
	}
}

func TestTypedClient(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)

	cm := configMap(ns, "a", map[string]string{"k": "1"})
	must(t, c.Create(ctx, cm.DeepCopy(), client.DryRunAll))
	if err := c.Get(ctx, client.ObjectKeyFromObject(cm), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Fatalf("after a dry run: %v, want NotFound", err)
	}
	must(t, c.Create(ctx, cm))
	if err := c.Create(ctx, configMap(ns, "a", nil)); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("second create: %v, want AlreadyExists", err)
	}

	stale := cm.DeepCopy()
	cm.Data["k"] = "2"
	must(t, c.Update(ctx, cm))
	stale.Data["k"] = "3"
	if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Fatalf("update of an old version: %v, want Conflict", err)
	}
	result, err := controllerutil.CreateOrPatch(ctx, c, cm, func() error {
		cm.Labels = map[string]string{"set": "yes"}
		return nil
	})
	must(t, err)
	if result != controllerutil.OperationResultUpdated {
		t.Errorf("CreateOrPatch: %s, want updated", result)
	}

	must(t, c.Create(ctx, configMap(ns, "b", nil)))
	var list corev1.ConfigMapList
	must(t, c.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{"set": "yes"}))
	if len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("list by label: %d items, want a alone", len(list.Items))
	}
	must(t, c.List(ctx, &list, client.InNamespace(ns), client.MatchingFields{"metadata.name": "b"}))
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("list by field: %d items, want b alone", len(list.Items))
	}
	must(t, c.List(ctx, &list, client.InNamespace(ns), client.Limit(1)))
	if len(list.Items) != 1 || list.Continue == "" {
		t.Fatalf("first page: %d items, continue %q", len(list.Items), list.Continue)
	}
	must(t, c.List(ctx, &list, client.InNamespace(ns), client.Limit(1), client.Continue(list.Continue)))
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("second page: %d items, want b alone", len(list.Items))
	}

	err = c.Delete(ctx, cm, client.Preconditions{UID: ptr.To(types.UID("another"))})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid: %v, want Conflict", err)
	}
	must(t, c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(ns), client.MatchingLabels{"set": "yes"}))
	if err := c.Get(ctx, client.ObjectKeyFromObject(cm), cm); !apierrors.IsNotFound(err) {
		t.Errorf("after DeleteAllOf: %v, want NotFound", err)
	}
	must(t, client.IgnoreNotFound(c.Delete(ctx, cm)))
}

func TestUnstructuredAndMetadataClient(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)

	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1",
		"kind":       "Deployment",
		"metadata":   map[string]any{"name": "web", "namespace": ns},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "registry.example/web:1"}}},
			},
		},
	}}
	must(t, c.Create(ctx, u))
	if n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); n != 1 {
		t.Errorf("replicas by default: %d, want 1", n)
	}

	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	must(t, c.Get(ctx, client.ObjectKeyFromObject(u), partial))
	if partial.UID != u.GetUID() || partial.Kind != "Deployment" {
		t.Errorf("metadata: kind %s, uid %s", partial.Kind, partial.UID)
	}
	before := partial.DeepCopy()
	partial.Labels = map[string]string{"by": "metadata"}
	must(t, c.Patch(ctx, partial, client.MergeFrom(before)))

	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	must(t, c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{"by": "metadata"}))
	if len(list.Items) != 1 {
		t.Errorf("metadata list: %d items, want 1", len(list.Items))
	}

	unknown := &unstructured.Unstructured{}
	unknown.SetGroupVersionKind(schema.GroupVersionKind{Group: "absent.example.com", Version: "v1", Kind: "Absent"})
	if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "a"}, unknown); err == nil {
		t.Error("get of an unknown kind succeeded")
	}
}

func TestPatches(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	d := deployment(ns, "web", 0)
	must(t, c.Create(ctx, d))

	before := d.DeepCopy()
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "registry.example/side:1"})
	must(t, c.Patch(ctx, d, client.StrategicMergeFrom(before)))
	if len(d.Spec.Template.Spec.Containers) != 2 || d.Generation != 2 {
		t.Fatalf("strategic merge: %d containers, generation %d", len(d.Spec.Template.Spec.Containers), d.Generation)
	}
	locked := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, d.DeepCopy(), locked); !apierrors.IsConflict(err) {
		t.Errorf("merge patch of an old version: %v, want Conflict", err)
	}
	must(t, c.Patch(ctx, d, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/template/spec/containers/1"}]`))))
	if len(d.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("JSON patch: %d containers, want 1", len(d.Spec.Template.Spec.Containers))
	}
	err := c.Patch(ctx, d.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"selector":{"matchLabels":{"app":"x"}}}}`)))
	if !apierrors.IsInvalid(err) {
		t.Errorf("patch of the selector: %v, want Invalid", err)
	}
}

func TestStatusAndScaleWriters(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}, NodeName: "absent"},
	}
	must(t, c.Create(ctx, pod))
	status := pod.DeepCopy()
	status.Spec.NodeName = "ignored"
	status.Status.Phase, status.Status.Message = corev1.PodRunning, "written by status"
	must(t, c.Status().Update(ctx, status))
	if status.Status.Message != "written by status" || status.Spec.NodeName != "absent" {
		t.Errorf("status update: message %q, node %q", status.Status.Message, status.Spec.NodeName)
	}
	before := status.DeepCopy()
	status.Status.Reason = "Patched"
	must(t, c.Status().Patch(ctx, status, client.MergeFrom(before)))

	d := deployment(ns, "web", 0)
	must(t, c.Create(ctx, d))
	scale := &autoscalingv1.Scale{}
	must(t, c.SubResource("scale").Get(ctx, d, scale))
	if scale.Status.Selector != "app=web" {
		t.Errorf("scale selector: %q", scale.Status.Selector)
	}
	scale.ResourceVersion, scale.Spec.Replicas = "", 2
	must(t, c.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale)))
	must(t, c.Get(ctx, client.ObjectKeyFromObject(d), d))
	if *d.Spec.Replicas != 2 {
		t.Errorf("scaled to %d, want 2", *d.Spec.Replicas)
	}
}

func TestServerSideApply(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	one := corev1ac.ConfigMap("shared", ns).WithData(map[string]string{"a": "1"})
	two := corev1ac.ConfigMap("shared", ns).WithData(map[string]string{"a": "2", "b": "2"})
	must(t, c.Apply(ctx, one, client.FieldOwner("one")))
	err := c.Apply(ctx, two, client.FieldOwner("two"))
	if !apierrors.IsConflict(err) {
		t.Fatalf("apply of another's field: %v, want Conflict", err)
	}
	if causes := err.(apierrors.APIStatus).Status().Details.Causes; len(causes) != 1 || causes[0].Field != ".data.a" {
		t.Errorf("conflict's causes: %v, want .data.a", causes)
	}
	must(t, c.Apply(ctx, two, client.FieldOwner("two"), client.ForceOwnership))
	must(t, c.Apply(ctx, corev1ac.ConfigMap("shared", ns).WithData(map[string]string{"b": "2"}), client.FieldOwner("two")))
	got := &corev1.ConfigMap{}
	must(t, c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "shared"}, got))
	if want := map[string]string{"b": "2"}; !maps.Equal(got.Data, want) {
		t.Errorf("after two stopped applying a: %v, want %v", got.Data, want)
	}

	d := deployment(ns, "web", 0)
	must(t, c.Create(ctx, d))
	condition := appsv1ac.DeploymentCondition().WithType("Example").WithStatus(corev1.ConditionTrue).
		WithReason("Applied").WithMessage("").WithLastUpdateTime(metav1.Now()).WithLastTransitionTime(metav1.Now())
	must(t, c.Status().Apply(ctx, appsv1ac.Deployment("web", ns).WithStatus(appsv1ac.DeploymentStatus().WithConditions(condition)),
		client.FieldOwner("conditions")))
	must(t, c.Get(ctx, client.ObjectKeyFromObject(d), d))
	for _, m := range d.ManagedFields {
		if m.Manager == "conditions" && m.Subresource == "status" && m.Operation == metav1.ManagedFieldsOperationApply {
			return
		}
	}
	t.Errorf("no manager of the status in %v", d.ManagedFields)
}

func TestWatch(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	w, err := c.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": "a"})
	must(t, err)
	defer w.Stop()
	cm := configMap(ns, "a", nil)
	must(t, c.Create(ctx, cm))
	must(t, c.Create(ctx, configMap(ns, "b", nil)))
	cm.Data = map[string]string{"k": "1"}
	must(t, c.Update(ctx, cm))
	must(t, c.Delete(ctx, cm))
	var got []string
	for event := range w.ResultChan() {
		got = append(got, fmt.Sprint(event.Type, " ", event.Object.(client.Object).GetName()))
		if event.Type == watch.Deleted {
			break
		}
	}
	if want := "[ADDED a MODIFIED a DELETED a]"; fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}
}
