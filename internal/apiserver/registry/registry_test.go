package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       data,
	}
}

// create stores an object in the namespace default.
func create[T resource.Object](t *testing.T, g *registrytest.Registry, group, plural string, obj T) T {
	t.Helper()
	e, err := g.Request(t, "create", group, plural, "default", "").Create(obj, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e.Object.(T)
}

// get returns the data of the config map x.
func get(t *testing.T, g *registrytest.Registry) map[string]string {
	t.Helper()
	e, err := g.Request(t, "get", "", "configmaps", "default", "x").Get("")
	if err != nil {
		t.Fatal(err)
	}
	return e.Object.(*corev1.ConfigMap).Data
}

func TestCreate(t *testing.T) {
	g := registrytest.Start(t)
	given := configMap("x", nil)
	given.UID, given.OwnerReferences = "mine", []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}, {APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"},
	}
	made := create(t, g, "", "configmaps", given)
	if made.UID == "" || made.UID == "mine" || made.CreationTimestamp.IsZero() || made.Namespace != "default" || made.ResourceVersion == "" {
		t.Errorf("%+v", made.ObjectMeta)
	}
	if len(made.OwnerReferences) != 1 || len(g.Warnings) != 1 || !strings.Contains(g.Warnings[0], "duplicate entries") {
		t.Errorf("%v, warned of %q", made.OwnerReferences, g.Warnings)
	}
	request := g.Request(t, "create", "", "configmaps", "default", "")
	if _, err := request.Create(configMap("x", nil), &metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second one: %v", err)
	}
	elsewhere := configMap("y", nil)
	elsewhere.Namespace = "other"
	if _, err := request.Create(elsewhere, &metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("in another namespace: %v", err)
	}
	e, err := request.Create(configMap("dry", nil), &metav1.CreateOptions{DryRun: []string{"All"}})
	if err != nil || e.Object.GetUID() == "" {
		t.Fatalf("a dry run: %v", err)
	}
	if _, err := g.Request(t, "get", "", "configmaps", "default", "dry").Get(""); !apierrors.IsNotFound(err) {
		t.Errorf("what a dry run made: %v", err)
	}
}

func TestUpdate(t *testing.T) {
	g := registrytest.Start(t)
	made := create(t, g, "", "configmaps", configMap("x", nil))
	update := func(revision string) error {
		_, created, err := g.Request(t, "update", "", "configmaps", "default", "x").Update(&metav1.UpdateOptions{}, func() (resource.Object, error) {
			next := configMap("x", map[string]string{"from": revision})
			next.ResourceVersion = revision
			return next, nil
		})
		if created {
			t.Error("an update made the object")
		}
		return err
	}
	if err := update(made.ResourceVersion); err != nil {
		t.Error(err)
	}
	if err := update(made.ResourceVersion); !apierrors.IsConflict(err) {
		t.Errorf("of an old revision: %v", err)
	}
	if err := update(""); err != nil || get(t, g)["from"] != "" {
		t.Errorf("of whatever there is: %v, %v", err, get(t, g))
	}
}

// An update that creates needs the permission to create.
func TestCreateByUpdate(t *testing.T) {
	var asked []string
	g := registrytest.Start(t, func(c *registry.Config) {
		c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = append(asked, a.GetVerb())
			if a.GetName() == "forbidden" {
				return authorizer.DecisionDeny, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		})
	})
	update := func(name string) (created bool, err error) {
		_, created, err = g.Request(t, "update", "coordination.k8s.io", "leases", "default", name).Update(&metav1.UpdateOptions{}, func() (resource.Object, error) {
			return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		})
		return created, err
	}
	if created, err := update("x"); err != nil || !created {
		t.Errorf("created %v, %v", created, err)
	}
	if _, err := update("forbidden"); !apierrors.IsForbidden(err) {
		t.Errorf("without the right: %v", err)
	}
	if !slices.Equal(slices.Compact(asked), []string{"create"}) {
		t.Errorf("asked for %v", asked)
	}
}

// A conflicting write is repeated with the result of the other one.
func TestUpdateUnchecked(t *testing.T) {
	g := registrytest.Start(t)
	made := create(t, g, "", "configmaps", configMap("x", nil))
	set := func(key string, before func()) error {
		_, err := g.Request(t, "update", "", "configmaps", "default", "x").UpdateUnchecked(made.UID, nil, func(current resource.Object) (resource.Object, error) {
			before()
			next := current.DeepCopyObject().(*corev1.ConfigMap)
			if next.Data == nil {
				next.Data = map[string]string{}
			}
			next.Data[key] = "set"
			return next, nil
		})
		return err
	}
	times := 0
	err := set("a", func() {
		if times++; times == 1 {
			if err := set("b", func() {}); err != nil {
				t.Error(err)
			}
		}
	})
	if data := get(t, g); err != nil || times != 2 || len(data) != 2 {
		t.Errorf("%v after %d times: %v", data, times, err)
	}
	_, err = g.Request(t, "update", "", "configmaps", "default", "x").UpdateUnchecked("other", nil, func(current resource.Object) (resource.Object, error) { return current, nil })
	if !apierrors.IsConflict(err) {
		t.Errorf("of another object: %v", err)
	}
}

func TestPatch(t *testing.T) {
	g := registrytest.Start(t)
	create(t, g, "", "configmaps", configMap("x", map[string]string{"a": "1", "b": "2"}))
	for _, test := range []struct {
		kind types.PatchType
		body string
		want map[string]string
	}{
		{types.MergePatchType, `{"data":{"a":null,"c":"3"}}`, map[string]string{"b": "2", "c": "3"}},
		{types.StrategicMergePatchType, `{"data":{"b":null}}`, map[string]string{"c": "3"}},
		{types.JSONPatchType, `[{"op":"add","path":"/data/d","value":"4"}]`, map[string]string{"c": "3", "d": "4"}},
	} {
		p, err := registry.ParsePatch(test.kind, []byte(test.body), &metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := g.Request(t, "patch", "", "configmaps", "default", "x").Patch(p)
		if err != nil {
			t.Fatalf("%s: %v", test.body, err)
		}
		got := e.Object.(*corev1.ConfigMap).Data
		if len(got) != len(test.want) {
			t.Errorf("%s: %v", test.body, got)
		}
		for key, value := range test.want {
			if got[key] != value {
				t.Errorf("%s: %v", test.body, got)
			}
		}
	}
	if _, err := registry.ParsePatch(types.MergePatchType, []byte(`{`), &metav1.PatchOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("half a patch: %v", err)
	}
}

// An object with finalizers stays until the last one is removed.
func TestDelete(t *testing.T) {
	g := registrytest.Start(t)
	given := configMap("x", nil)
	given.Finalizers = []string{"example.com/f"}
	made := create(t, g, "", "configmaps", given)
	request := g.Request(t, "delete", "", "configmaps", "default", "x")
	other := types.UID("other")
	if _, _, err := request.Delete(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("of another object: %v", err)
	}
	e, gone, err := request.Delete(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}})
	if err != nil || gone || e.Object.GetDeletionTimestamp() == nil {
		t.Fatalf("gone %v, %v", gone, err)
	}
	_, _, err = g.Request(t, "update", "", "configmaps", "default", "x").Update(&metav1.UpdateOptions{}, func() (resource.Object, error) { return configMap("x", nil), nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Request(t, "get", "", "configmaps", "default", "x").Get(""); !apierrors.IsNotFound(err) {
		t.Errorf("after its last finalizer: %v", err)
	}
}

func TestDeleteCollection(t *testing.T) {
	g := registrytest.Start(t)
	for _, name := range []string{"a", "b", "c"} {
		obj := configMap(name, nil)
		obj.Labels = map[string]string{"name": name}
		create(t, g, "", "configmaps", obj)
	}
	selector, err := labels.Parse("name in (a,b)")
	if err != nil {
		t.Fatal(err)
	}
	request := g.Request(t, "deletecollection", "", "configmaps", "default", "")
	page, err := request.List(&internalversion.ListOptions{LabelSelector: selector})
	if err != nil || len(page.Entries) != 2 {
		t.Fatalf("%d, %v", len(page.Entries), err)
	}
	if err := request.DeleteCollection(page.Entries, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page, err = request.List(&internalversion.ListOptions{})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Name != "c" {
		t.Errorf("%v, %v", page, err)
	}
}

// admitted calls validate for each write.
type admitted struct {
	validate func(admission.Attributes) error
}

func (admitted) Handles(o admission.Operation) bool { return o == admission.Delete }

func (p admitted) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.validate(a)
}

// collection returns a request for a number of ConfigMaps, and their entries.
func collection(t *testing.T, n int, validate func(admission.Attributes) error) (*registry.Request, []*watchcache.Entry) {
	g := registrytest.Start(t, func(c *registry.Config) { c.Admission = admitted{validate} })
	for i := range n {
		create(t, g, "", "configmaps", configMap(fmt.Sprint("x", i), nil))
	}
	request := g.Request(t, "deletecollection", "", "configmaps", "default", "")
	page, err := request.List(&internalversion.ListOptions{})
	if err != nil || len(page.Entries) != n {
		t.Fatal(page, err)
	}
	return request, page.Entries
}

// A deletion of a collection does not wait for the one before.
func TestDeleteCollectionConcurrently(t *testing.T) {
	var begun sync.WaitGroup
	begun.Add(2)
	request, entries := collection(t, 2, func(admission.Attributes) error {
		begun.Done()
		begun.Wait() // until the other one is here
		return nil
	})
	if err := request.DeleteCollection(entries, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Once an object of a collection cannot be deleted, no more deletions begin.
func TestDeleteCollectionStopsAtAnError(t *testing.T) {
	var calls atomic.Int32
	request, entries := collection(t, 100, func(a admission.Attributes) error {
		calls.Add(1)
		return apierrors.NewForbidden(corev1.Resource("configmaps"), a.GetName(), errors.New("no"))
	})
	if err := request.DeleteCollection(entries, &metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
	if n := calls.Load(); n > 50 {
		t.Errorf("%d deletions of 100 were tried", n)
	}
	if page, err := request.List(&internalversion.ListOptions{}); err != nil || len(page.Entries) != 100 {
		t.Errorf("%v, %v", page, err)
	}
}

// A panic while one object of a collection is deleted reaches the request.
func TestDeleteCollectionPanics(t *testing.T) {
	request, entries := collection(t, 3, func(admission.Attributes) error { panic("an admission plugin") })
	defer func() {
		if reason := recover(); reason != "an admission plugin" {
			t.Errorf("panic %v", reason)
		}
	}()
	err := request.DeleteCollection(entries, &metav1.DeleteOptions{})
	t.Errorf("no panic, error %v", err)
}

// steps records the calls of admission.
type steps struct{ taken []string }

func (s *steps) Handles(admission.Operation) bool { return true }

func (s *steps) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	s.taken = append(s.taken, "admit "+string(a.GetOperation())+" "+a.GetName())
	return nil
}

func (s *steps) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	s.taken = append(s.taken, "validate "+string(a.GetOperation())+" "+a.GetName())
	return nil
}

// Each write calls both steps of admission, except for writes that follow
// from an admitted one.
func TestAdmission(t *testing.T) {
	s := &steps{}
	g := registrytest.Start(t, func(c *registry.Config) { c.Admission = s })
	create(t, g, "", "configmaps", configMap("x", nil))
	if _, _, err := g.Request(t, "delete", "", "configmaps", "default", "x").DeleteAdmitted(&metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, g, "", "configmaps", configMap("y", nil))
	if _, _, err := g.Request(t, "delete", "", "configmaps", "default", "y").Delete(&metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"admit CREATE x", "validate CREATE x", "admit CREATE y", "validate CREATE y", "admit DELETE y", "validate DELETE y"}
	if !slices.Equal(s.taken, want) {
		t.Errorf("%q", s.taken)
	}
}

func TestScale(t *testing.T) {
	g := registrytest.Start(t)
	two := int32(2)
	selected := map[string]string{"app": "web"}
	create(t, g, "apps", "deployments", &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selected},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, TerminationGracePeriodSeconds: new(int64(30)),
					Containers: []corev1.Container{{
						Name: "main", Image: "x", ImagePullPolicy: corev1.PullAlways,
						TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
					}},
				},
			},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		},
	})
	request := g.Request(t, "update", "apps", "deployments", "default", "web")
	request.Subresource, request.Info.Subresource = request.Endpoint.Resource.Subresource("scale"), "scale"
	e, err := request.UpdateScale(&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if scale := registry.ScaleOf(request.Subresource, e.Object); scale.Spec.Replicas != 3 || scale.Status.Selector != "app=web" {
		t.Errorf("%+v", scale)
	}
	p, err := registry.ParsePatch(types.MergePatchType, []byte(`{"spec":{"replicas":-1}}`), &metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := request.PatchScale(p); !apierrors.IsInvalid(err) {
		t.Errorf("scaled below zero: %v", err)
	}
}

// order records when the resource's rules and its lifecycle see an object.
type order struct {
	seen   []string
	stored []bool
}

func (o *order) BeginCreate(context.Context, resource.Object, bool) (func(bool), error) {
	o.seen = append(o.seen, "begin")
	return func(stored bool) { o.stored = append(o.stored, stored) }, nil
}

func (o *order) BeginUpdate(ctx context.Context, obj, _ resource.Object, dryRun bool) (func(bool), error) {
	return o.BeginCreate(ctx, obj, dryRun)
}

func (o *order) AfterDelete(context.Context, resource.Object) { o.seen = append(o.seen, "deleted") }

// The resource's rules prepare an object once, before its lifecycle begins,
// and validate the result of the lifecycle.
func TestLifecycle(t *testing.T) {
	o := &order{}
	resources := all.All()
	r := resources[slices.IndexFunc(resources, func(r *resource.Resource) bool { return r.Plural == "configmaps" })]
	prepare, validate, prepareUpdate := r.Strategy.PrepareForCreate, r.Strategy.Validate, r.Strategy.PrepareForUpdate
	r.Strategy.PrepareForCreate = func(q *resource.RequestContext, obj resource.Object) {
		o.seen = append(o.seen, "prepare")
		prepare(q, obj)
	}
	r.Strategy.PrepareForUpdate = func(q *resource.RequestContext, obj, old resource.Object) {
		o.seen = append(o.seen, "prepare")
		prepareUpdate(q, obj, old)
	}
	r.Strategy.Validate = func(q *resource.RequestContext, obj resource.Object) field.ErrorList {
		o.seen = append(o.seen, "validate")
		return validate(q, obj)
	}
	g := registrytest.StartOn(t, mem.New(), resources, func(c *registry.Config) {
		c.Lifecycles = map[schema.GroupResource]registry.Lifecycle{r.GroupResource(): o}
	})
	made := create(t, g, "", "configmaps", configMap("x", nil))
	change := made.DeepCopy()
	change.Data = map[string]string{"a": "1"}
	if _, _, err := g.Request(t, "update", "", "configmaps", "default", "x").Update(&metav1.UpdateOptions{}, func() (resource.Object, error) { return change, nil }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Request(t, "delete", "", "configmaps", "default", "x").Delete(&metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"prepare", "begin", "validate", "prepare", "begin", "deleted"}
	if !slices.Equal(o.seen, want) || !slices.Equal(o.stored, []bool{true, true}) {
		t.Errorf("%q, stored %v", o.seen, o.stored)
	}
}
