package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controller/kinds"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/quota"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func show(l v1.ResourceList) string {
	var parts []string
	for name, q := range l {
		parts = append(parts, string(name)+"="+q.String())
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func pod(name, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list("cpu", cpu)}}}},
	}
}

func TestCount(t *testing.T) {
	pods := []any{pod("a", "1"), pod("b", "500m"), pod("c", "0")}
	for name, test := range map[string]struct {
		scopes []v1.ResourceQuotaScope
		gr     schema.GroupResource
		names  []v1.ResourceName
		want   string
	}{
		"sum of requests":        {nil, schema.GroupResource{Resource: "pods"}, []v1.ResourceName{"pods", "requests.cpu", "limits.cpu"}, "limits.cpu=0 pods=3 requests.cpu=1500m"},
		"scope":                  {[]v1.ResourceQuotaScope{v1.ResourceQuotaScopeBestEffort}, schema.GroupResource{Resource: "pods"}, []v1.ResourceName{"pods"}, "pods=1"},
		"object count":           {nil, schema.GroupResource{Group: "example.com", Resource: "boats"}, []v1.ResourceName{"count/boats.example.com"}, "count/boats.example.com=3"},
		"no object in the scope": {[]v1.ResourceQuotaScope{v1.ResourceQuotaScopeBestEffort}, schema.GroupResource{Resource: "secrets"}, []v1.ResourceName{"secrets"}, "secrets=0"},
	} {
		q := &v1.ResourceQuota{Spec: v1.ResourceQuotaSpec{Scopes: test.scopes}}
		if got := show(count(q, test.gr, test.names, pods, time.Now(), quota.Lookup{})); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestStatusKeepsUncountedUsage(t *testing.T) {
	q := &v1.ResourceQuota{
		Spec:   v1.ResourceQuotaSpec{Hard: list("pods", "5", "count/boats.example.com", "2", "secrets", "1")},
		Status: v1.ResourceQuotaStatus{Hard: list("pods", "3"), Used: list("pods", "1", "count/boats.example.com", "2", "services", "4")},
	}
	got := statusOf(q, list("pods", "2"))
	if hard, used := show(got.Hard), show(got.Used); hard != show(q.Spec.Hard) || used != "count/boats.example.com=2 pods=2" {
		t.Errorf("hard %s, used %s", hard, used)
	}
	if !equal(got, *got.DeepCopy()) || equal(v1.ResourceQuotaStatus{}, v1.ResourceQuotaStatus{Hard: v1.ResourceList{}, Used: v1.ResourceList{}}) {
		t.Error("want a copy to be equal, and a missing status to differ from an empty one")
	}
}

// A quota with a scope counts a claim anew when one of its attributes classes
// changes, those of its status too.
func TestClassesOfClaimChange(t *testing.T) {
	for name, change := range map[string]func(*v1.PersistentVolumeClaim){
		"requested": func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("fast") },
		"current":   func(c *v1.PersistentVolumeClaim) { c.Status.CurrentVolumeAttributesClassName = new("fast") },
		"target": func(c *v1.PersistentVolumeClaim) {
			c.Status.ModifyVolumeStatus = &v1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "fast"}
		},
	} {
		before := &v1.PersistentVolumeClaim{}
		after := before.DeepCopy()
		if usageChanged(schema.GroupResource{Resource: "persistentvolumeclaims"}, before, after, quota.Lookup{}) {
			t.Errorf("%s: counted anew without a change", name)
		}
		change(after)
		if !usageChanged(schema.GroupResource{Resource: "persistentvolumeclaims"}, before, after, quota.Lookup{}) {
			t.Errorf("%s: not counted anew", name)
		}
	}
}

// The usage follows creations, completions and deletions, also of custom
// resources.
func TestUsageFollowsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, pod("a", "1"), pod("b", "2"), &v1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"},
			Spec:       v1.ResourceQuotaSpec{Hard: list("pods", "5", "requests.cpu", "5", "count/boats.example.com", "2")},
		})
		verbs := metav1.Verbs{"list", "watch", "create", "delete"}
		c.Fake.Resources = []*metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs}}},
		}
		scheme := runtime.NewScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		boats := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Boat"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "boat"},
		})
		c.Run(controller.Descriptor{New: func(env *controller.Env) (controller.Controller, error) {
			return newCounter(env, boats, defaultOptions()), nil
		}})
		used := func() string {
			q, err := c.Fake.CoreV1().ResourceQuotas("shop").Get(t.Context(), "q", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return show(q.Status.Used)
		}
		want := func(what, want string) {
			t.Helper()
			synctest.Wait()
			if got := used(); got != want {
				t.Fatalf("%s: %s, want %s", what, got, want)
			}
		}
		want("at first", "pods=2 requests.cpu=3")

		c.Fake.Resources = append(c.Fake.Resources, &metav1.APIResourceList{
			GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "boats", Kind: "Boat", Namespaced: true, Verbs: verbs}},
		})
		time.Sleep(recountDelay)
		want("a resource is served later", "count/boats.example.com=1 pods=2 requests.cpu=3")

		if err := c.Fake.CoreV1().Pods("shop").Delete(context.Background(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want("a pod is deleted", "count/boats.example.com=1 pods=1 requests.cpu=1")

		a := pod("a", "1")
		a.Status.Phase = v1.PodSucceeded
		if _, err := c.Fake.CoreV1().Pods("shop").UpdateStatus(context.Background(), a, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want("a pod ends", "count/boats.example.com=1 pods=0 requests.cpu=0")

		for i := range 3 {
			if _, err := c.Fake.CoreV1().Pods("shop").Create(context.Background(), pod(fmt.Sprint("new", i), "250m"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(recountDelay)
		want("pods were created", "count/boats.example.com=1 pods=3 requests.cpu=750m")
	})
}

// A limit of an extended resource counts what pods and claims ask for, and follows the name
// of the class of devices.
func TestDevicesAsExtendedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asking := pod("a", "1")
		asking.Spec.Containers[0].Resources.Requests = list("example.com/gpu", "2")
		claim := &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gpus"},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
				{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 3}},
			}}},
		}
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}}
		c := controllertest.New(t, asking, claim, class, &v1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"},
			Spec:       v1.ResourceQuotaSpec{Hard: list("requests.example.com/gpu", "9", "requests.deviceclass.resource.kubernetes.io/gpu", "9")},
		})
		verbs := metav1.Verbs{"list", "watch", "create", "delete"}
		c.Fake.Resources = []*metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs}}},
		}
		scheme := runtime.NewScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		c.Run(controller.Descriptor{New: func(env *controller.Env) (controller.Controller, error) {
			return newCounter(env, metadatafake.NewSimpleMetadataClient(scheme), defaultOptions()), nil
		}})
		want := func(what, want string) {
			t.Helper()
			synctest.Wait()
			q, err := c.Fake.CoreV1().ResourceQuotas("shop").Get(t.Context(), "q", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := show(q.Status.Used); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		want("claims are not served", "requests.deviceclass.resource.kubernetes.io/gpu=0 requests.example.com/gpu=2")

		c.Fake.Resources = append(c.Fake.Resources, &metav1.APIResourceList{
			GroupVersion: "resource.k8s.io/v1", APIResources: []metav1.APIResource{
				{Name: "resourceclaims", Kind: "ResourceClaim", Namespaced: true, Verbs: verbs},
				{Name: "deviceclasses", Kind: "DeviceClass", Verbs: verbs},
			},
		})
		time.Sleep(recountDelay)
		want("claims are served", "requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=5")

		class = class.DeepCopy()
		class.Spec.ExtendedResourceName = new("example.com/other")
		if _, err := c.Fake.ResourceV1().DeviceClasses().Update(t.Context(), class, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want("the class has another name", "requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=2")
	})
}

// A resource whose list fails keeps neither the other resources of its quota nor other quotas
// waiting.
func TestListFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := func(name string, hard v1.ResourceList) *v1.ResourceQuota {
			return &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1.ResourceQuotaSpec{Hard: hard}}
		}
		c := controllertest.New(t, pod("a", "1"), limit("mixed", list("pods", "5", "count/boats.example.com", "2")), limit("plain", list("pods", "5")))
		verbs := metav1.Verbs{"list", "watch", "create", "delete"}
		c.Fake.Resources = []*metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs}}},
			{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "boats", Kind: "Boat", Namespaced: true, Verbs: verbs}}},
		}
		scheme := runtime.NewScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		boats := metadatafake.NewSimpleMetadataClient(scheme)
		boats.PrependReactor("list", "boats", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("the conversion webhook is gone")
		})
		o := defaultOptions()
		o.workers = 1
		c.Run(controller.Descriptor{New: func(env *controller.Env) (controller.Controller, error) { return newCounter(env, boats, o), nil }})
		used := func() string {
			synctest.Wait()
			var out []string
			for _, name := range []string{"mixed", "plain"} {
				q, err := c.Fake.CoreV1().ResourceQuotas("shop").Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, show(q.Status.Used))
			}
			return strings.Join(out, ", ")
		}
		time.Sleep(syncTimeout + time.Second)
		if got := used(); got != "pods=1, pods=1" {
			t.Errorf("while the list fails: %s", got)
		}
	})
}

// slow is a cluster whose discovery does not answer before answer is closed.
type slow struct {
	kubernetes.Interface
	answer chan struct{}
}

func (s slow) Discovery() discovery.DiscoveryInterfaces {
	<-s.answer
	return s.Interface.Discovery()
}

// While the discovery for a new quota does not answer, what is watched already can be
// counted: updates of claims and pods wait for it otherwise.
func TestCountsDuringDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, pod("a", "1"))
		c.Fake.Resources = []*metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
				{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
			}},
		}
		w := &monitors{env: c.Env, changed: func(schema.GroupResource, any, any) {}, running: map[schema.GroupResource]*kinds.Monitor{}}
		defer w.closeExcept(nil)
		secrets := schema.GroupResource{Resource: "secrets"}
		if missing, err := w.add(t.Context(), map[schema.GroupResource]bool{quota.Pods: true}); err != nil || len(missing) > 0 {
			t.Fatalf("pods: missing %v, %v", missing, err)
		}
		answer := make(chan struct{})
		c.Env.Client.Kubernetes = slow{c.Fake, answer}
		added := make(chan error, 1)
		go func() {
			missing, err := w.add(t.Context(), map[schema.GroupResource]bool{secrets: true})
			if len(missing) > 0 {
				err = fmt.Errorf("missing %v", missing)
			}
			added <- err
		}()
		synctest.Wait() // for the discovery
		if w.mu.TryLock() {
			w.mu.Unlock()
		} else {
			t.Error("the discovery holds the lock that each count takes")
		}
		close(answer)
		if err := <-added; err != nil {
			t.Errorf("secrets: %v", err)
		}
		if !w.counts(quota.Pods) || !w.counts(secrets) {
			t.Error("pods or secrets cannot be counted")
		}
	})
}
