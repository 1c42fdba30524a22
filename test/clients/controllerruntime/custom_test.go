package controllerruntime

import (
	"context"
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const greetingFinalizer = "clients.example.com/farewell"

// greeter writes the greeting of each Greeting to its status and to a ConfigMap
// that it owns. When a Greeting is deleted, it removes the finalizer and sends the
// name to farewells.
type greeter struct {
	client.Client
	farewells chan<- string
}

func (r *greeter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	g := &Greeting{}
	if err := r.Get(ctx, request.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !g.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(g, greetingFinalizer) {
			if err := r.Update(ctx, g); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			r.farewells <- g.Name
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(g, greetingFinalizer) {
		if err := r.Update(ctx, g); err != nil {
			return ctrl.Result{}, err
		}
	}
	said := strings.Repeat("Hello, "+g.Spec.Name+"! ", int(*g.Spec.Times))
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, cm, func() error {
		cm.Data = map[string]string{"said": said}
		return controllerutil.SetControllerReference(g, cm, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := g.DeepCopyObject().(*Greeting)
	g.Status.Said, g.Status.Times, g.Status.ObservedGeneration = said, *g.Spec.Times, g.Generation
	return ctrl.Result{}, r.Status().Patch(ctx, g, client.MergeFrom(before))
}

func TestCustomResourceController(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	mgr := newManager(t, manager.Options{Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}}})
	farewells := make(chan string, 1)
	must(t, ctrl.NewControllerManagedBy(mgr).For(&Greeting{}).Owns(&corev1.ConfigMap{}).
		Complete(&greeter{mgr.GetClient(), farewells}))
	start(t, mgr)

	g := &Greeting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "world"}, Spec: GreetingSpec{Name: "world"}}
	must(t, c.Create(ctx, g))
	if g.Spec.Times == nil || *g.Spec.Times != 1 {
		t.Errorf("times by default: %v, want 1", g.Spec.Times)
	}
	said := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
				return err
			}
			if g.Status.Said != want || g.Status.ObservedGeneration != g.Generation {
				return fmt.Errorf("said %q for generation %d of %d, want %q", g.Status.Said, g.Status.ObservedGeneration, g.Generation, want)
			}
			return nil
		}
	}
	eventually(t, "the first greeting", said("Hello, world! "))

	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	must(t, c.SubResource("scale").Update(ctx, g, client.WithSubResourceBody(scale)))
	eventually(t, "the greeting after scaling", said("Hello, world! Hello, world! "))

	cm := &corev1.ConfigMap{}
	must(t, c.Get(ctx, client.ObjectKeyFromObject(g), cm))
	owned := cm.UID
	must(t, c.Delete(ctx, cm))
	eventually(t, "the owned object is created again", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(g), cm); err != nil {
			return err
		}
		if cm.UID == owned {
			return fmt.Errorf("still the deleted object")
		}
		return nil
	})

	must(t, c.Delete(ctx, g, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	if name := <-farewells; name != "world" {
		t.Errorf("farewell to %q", name)
	}
	eventually(t, "the deletion of the greeting and its ConfigMap", func(ctx context.Context) error {
		for _, object := range []client.Object{&Greeting{}, &corev1.ConfigMap{}} {
			if err := c.Get(ctx, client.ObjectKeyFromObject(g), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T still exists (%v)", object, err)
			}
		}
		return nil
	})
}

func TestCustomResourceRules(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	g := &Greeting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rules"}, Spec: GreetingSpec{Name: "x", Times: ptr.To[int32](2)}}
	g.Status.Said = "written by create"
	must(t, c.Create(ctx, g))
	if g.Status.Said != "" || g.Generation != 1 {
		t.Errorf("after create: status %q, generation %d", g.Status.Said, g.Generation)
	}

	g.Status.Said = "written by status"
	g.Spec.Times = ptr.To[int32](9)
	must(t, c.Status().Update(ctx, g))
	if *g.Spec.Times != 2 || g.Status.Said != "written by status" || g.Generation != 1 {
		t.Errorf("after a status write: times %d, said %q, generation %d", *g.Spec.Times, g.Status.Said, g.Generation)
	}

	g.Spec.Times = ptr.To[int32](1)
	err := c.Update(ctx, g)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "greetings cannot be taken back") {
		t.Errorf("a refused transition: %v, want Invalid with the rule's message", err)
	}
	g.Spec.Times = ptr.To[int32](-1)
	if err := c.Update(ctx, g); !apierrors.IsInvalid(err) {
		t.Errorf("times -1: %v, want Invalid", err)
	}

	other := &Greeting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}, Spec: GreetingSpec{Name: "y"}}
	must(t, c.Create(ctx, other))
	var list GreetingList
	must(t, c.List(ctx, &list, client.InNamespace(ns), client.MatchingFields{"spec.name": "y"}))
	if len(list.Items) != 1 || list.Items[0].Name != "other" {
		t.Errorf("list by spec.name: %d items, want other alone", len(list.Items))
	}

	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "applied", "namespace": ns},
		"spec":     map[string]any{"name": "z"},
	}}
	u.SetGroupVersionKind(greetingVersion.WithKind("Greeting"))
	must(t, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("one")))
	u.Object["spec"] = map[string]any{"name": "changed"}
	u.SetManagedFields(nil)
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("two")); !apierrors.IsConflict(err) {
		t.Errorf("apply of another's field: %v, want Conflict", err)
	}

	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	u.Object = map[string]any{
		"metadata": map[string]any{"name": "unknown", "namespace": ns},
		"spec":     map[string]any{"name": "z", "absent": true},
	}
	u.SetGroupVersionKind(greetingVersion.WithKind("Greeting"))
	if err := strict.Create(ctx, u); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.absent"`) {
		t.Errorf("an unknown field under strict validation: %v", err)
	}
}
