package resourceclaim

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// pod has the claim "own" from a template and uses the claim "shared".
func pod(name string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{
		{Name: "own", ResourceClaimTemplateName: new("gpu")}, {Name: "shared", ResourceClaimName: new("shared")},
	}}}
	for _, c := range change {
		c(p)
	}
	return p
}

func finished(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }
func onNode(p *v1.Pod)   { p.Spec.NodeName = "n1" }
func deleting(p *v1.Pod) { p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"test"} }
func noClaims(p *v1.Pod) { p.Spec.ResourceClaims = nil }
func onlyOwn(p *v1.Pod)  { p.Spec.ResourceClaims = p.Spec.ResourceClaims[:1] }
func ownNamed(p *v1.Pod) {
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "own", ResourceClaimName: new("made")}}
}

func template() *resourceapi.ResourceClaimTemplate {
	t := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gpu"}}
	t.Spec.Labels, t.Spec.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	t.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu"}}}
	return t
}

func claim(name string, change ...func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	for _, f := range change {
		f(c)
	}
	return c
}

func allocated(c *resourceapi.ResourceClaim) {
	c.Status.Allocation, c.Finalizers = &resourceapi.AllocationResult{}, []string{resourceapi.Finalizer}
}

func gone(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = new(metav1.Now()) }

func ownedBy(pod string) func(*resourceapi.ResourceClaim) {
	return func(c *resourceapi.ResourceClaim) {
		c.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: "own"}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod, UID: types.UID(pod), Controller: new(true)}}
	}
}

func reservedFor(pods ...string) func(*resourceapi.ResourceClaim) {
	return func(c *resourceapi.ResourceClaim) {
		for _, p := range pods {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
		}
	}
}

func forJob(c *resourceapi.ResourceClaim) {
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "jobs", Name: "x", UID: "x"})
}

// show describes all claims.
func show(t *testing.T, c *controllertest.Cluster) func() string {
	return func() string {
		list, err := c.Fake.ResourceV1().ResourceClaims("shop").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, claim := range list.Items {
			words := []string{strings.TrimRight(claim.Name, "0123456789")}
			if claim.Status.Allocation != nil {
				words = append(words, "allocated")
			}
			for _, r := range claim.Status.ReservedFor {
				words = append(words, "for "+r.Name)
			}
			if slices.Contains(claim.Finalizers, resourceapi.Finalizer) {
				words = append(words, "protected")
			}
			out = append(out, strings.Join(words, " "))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
}

func TestClaimsOfPods(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		want    string
	}{
		{"a pod waits", []runtime.Object{pod("web"), template()}, "web-own-"},
		{"the claim exists already", []runtime.Object{pod("web"), template(), claim("made", ownedBy("web"))}, "made"},
		{"the claim of the status is gone", []runtime.Object{pod("web", ownNamed), template()}, "web-own-"},
		{"a finished pod", []runtime.Object{pod("web", finished), template()}, ""},
		{"a pod that is being deleted", []runtime.Object{pod("web", deleting), template()}, ""},
		{"a pod without claims", []runtime.Object{pod("web", noClaims), template()}, ""},
		{
			"a pod that is bound by hand reserves its claims",
			[]runtime.Object{pod("web", onNode, ownNamed), template(), claim("made", ownedBy("web"), allocated), claim("shared", allocated, reservedFor("other")), pod("other", noClaims)},
			"made allocated for web protected, shared allocated for other for web protected",
		},
		{
			"users that are done",
			[]runtime.Object{pod("done", finished, noClaims), pod("live", noClaims), claim("shared", allocated, reservedFor("done", "live", "missing"))},
			"shared allocated for live protected",
		},
		{
			"a user that is being deleted on its node",
			[]runtime.Object{pod("web", onNode, deleting), claim("shared", allocated, reservedFor("web"))}, "shared allocated for web protected",
		},
		{"no users are left", []runtime.Object{pod("done", finished), claim("shared", allocated, reservedFor("done", "missing"))}, "shared"},
		{"another pod of the same name", []runtime.Object{
			pod("web", noClaims, func(p *v1.Pod) { p.UID = "new" }), claim("shared", allocated, reservedFor("web")),
		}, "shared"},
		{"an unused claim keeps its devices", []runtime.Object{claim("shared", allocated)}, "shared allocated protected"},
		{"a deleted claim gives them back", []runtime.Object{claim("shared", allocated, gone)}, "shared"},
		{"a deleted claim in use", []runtime.Object{pod("live", noClaims), claim("shared", allocated, gone, reservedFor("live"))}, "shared allocated for live protected"},
		{"the claim of a finished pod", []runtime.Object{pod("web", finished, ownNamed, onlyOwn), claim("made", ownedBy("web"))}, ""},
		{
			"the claim of a finished pod with its devices",
			[]runtime.Object{pod("web", finished, ownNamed, onlyOwn), claim("made", ownedBy("web"), allocated, reservedFor("web"))}, "",
		},
		{"a claim of the same name in another namespace", []runtime.Object{pod("web", onlyOwn), template(), claim("made", ownedBy("web"), func(c *resourceapi.ResourceClaim) {
			c.Namespace = "other"
		})}, "web-own-"},
		{"a claim of nobody with the name of one that a pod would get", []runtime.Object{pod("web", onlyOwn), claim("web-own")}, "web-own"},
		{"a user of another kind", []runtime.Object{claim("shared", allocated, forJob)}, "shared allocated for x protected"},
		{
			"a user of another kind beside a pod that is done",
			[]runtime.Object{pod("done", finished, noClaims), claim("shared", allocated, reservedFor("done"), forJob)}, "shared allocated for x protected",
		},
		{"the finalizer of a claim that is about to be allocated", []runtime.Object{claim("shared", func(c *resourceapi.ResourceClaim) {
			c.Finalizers = []string{resourceapi.Finalizer}
		})}, "shared protected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controllertest.New(t, test.objects...)
				c.Run(Descriptor())
				synctest.Wait()
				controllertest.Eventually(t, show(t, c), test.want)
			})
		})
	}
}

func TestCreatedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, pod("web"))
		c.Run(Descriptor())
		synctest.Wait()
		var events string
		controllertest.Eventually(t, func() bool {
			events += strings.Join(c.DrainEvents(), "\n")
			return strings.Contains(events, `Warning FailedResourceClaimCreation PodResourceClaim own: resource claim template "gpu": `)
		}, true)
		if _, err := c.Fake.ResourceV1().ResourceClaimTemplates("shop").Create(t.Context(), template(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var name string
		controllertest.Eventually(t, func() bool {
			web := c.Pods("shop")[0]
			if len(web.Status.ResourceClaimStatuses) != 1 || web.Status.ResourceClaimStatuses[0].Name != "own" {
				return false
			}
			name = *web.Status.ResourceClaimStatuses[0].ResourceClaimName
			return true
		}, true)
		made, err := c.Fake.ResourceV1().ResourceClaims("shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.Labels["a"] != "b" || made.Annotations["c"] != "d" || made.Annotations[resourceapi.PodResourceClaimAnnotation] != "own" ||
			made.Spec.Devices.Requests[0].Exactly.DeviceClassName != "gpu" || !metav1.IsControlledBy(made, &c.Pods("shop")[0]) {
			t.Errorf("claim %+v", made)
		}
		// It is made again if somebody deletes it.
		if err := c.Fake.ResourceV1().ResourceClaims("shop").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() bool {
			status := c.Pods("shop")[0].Status.ResourceClaimStatuses
			return len(status) == 1 && *status[0].ResourceClaimName != name
		}, true)
		if got := show(t, c)(); got != "web-own-" {
			t.Errorf("claims %s", got)
		}
	})
}

// The informer may show a claim, and that it was deleted, before the answer to
// its creation arrives. Here nothing handles the informer's events.
func TestClaimDeletedBeforeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := pod("web", onlyOwn)
		c := controllertest.New(t, web, template())
		made, err := newController(c.Env, 1, newCreations())
		if err != nil {
			t.Fatal(err)
		}
		k := made.(*claims)
		controllertest.Eventually(t, func() bool {
			_, err := k.templates.ResourceClaimTemplates("shop").Get("gpu")
			return err == nil && len(k.podIndex.List()) == 1 && c.Env.Client.Informers.Resource().V1().ResourceClaims().Informer().HasSynced()
		}, true)
		own := &web.Spec.ResourceClaims[0]
		claim, err := k.create(t.Context(), web, own)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := k.find(web, "own"); err != nil || found == nil || found.Name != claim.Name {
			t.Errorf("found %v, %v; want %s", found, err, claim.Name)
		}
		controllertest.Eventually(t, func() int { return len(k.claimOf.List()) }, 1)
		if err := c.Fake.ResourceV1().ResourceClaims("shop").Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() int { return len(k.claimOf.List()) }, 0)
		if found, err := k.find(web, "own"); err != nil || found != nil {
			t.Errorf("found %v, %v; the claim was deleted", found, err)
		}

		if err := c.Fake.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() int { return len(k.podIndex.List()) }, 0)
		if _, err := k.create(t.Context(), web, own); err != nil || len(k.created) != 0 {
			t.Errorf("%v, %d noted; the pod was deleted", err, len(k.created))
		}
	})
}

// A claim that was created for a pod does not keep the pod from being deleted, and is counted.
func TestOwnerOfCreatedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, pod("web"), template())
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		synctest.Wait()
		list, err := c.Fake.ResourceV1().ResourceClaims("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatal(list, err)
		}
		if ref := metav1.GetControllerOf(&list.Items[0]); ref == nil || ref.Name != "web" || ref.BlockOwnerDeletion != nil {
			t.Errorf("owner %+v", ref)
		}
		families, err := registry.Gather()
		if err != nil || len(families) != 2 || families[1].GetName() != "dynamic_resource_allocation_resourceclaim_creates_total" {
			t.Fatal(families, err)
		}
		const labels = "admin_access=false owner_api_group= owner_api_kind=Pod status=success"
		var got []string
		for _, l := range families[1].GetMetric()[0].GetLabel() {
			got = append(got, l.GetName()+"="+l.GetValue())
		}
		if n := families[1].GetMetric()[0].GetCounter().GetValue(); strings.Join(got, " ") != labels || n != 1 {
			t.Errorf("%v created with %v", n, got)
		}
	})
}
