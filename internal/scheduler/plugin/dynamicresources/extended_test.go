package dynamicresources

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func gpuClass() *resourceapi.DeviceClass {
	c := class("gpu", "")
	c.Spec.ExtendedResourceName = new("example.com/gpu")
	return c
}

func podWithGPUs(name, count string) *v1.Pod {
	p := pod(name)
	p.Spec.Containers[0].Resources.Requests = quantity(count)
	return p
}

// extendedClaims describes all claims as the API has them.
func (f *fixture) extendedClaims() string {
	f.t.Helper()
	list, err := f.Fake.ResourceV1().ResourceClaims("shop").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		name, _, _ := strings.Cut(list.Items[i].Name, "resources-")
		out = append(out, name+": "+describe(&list.Items[i]))
	}
	return strings.Join(out, ", ")
}

// A node that has the resource itself needs no devices for it.
func TestExtendedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := node("b")
		plain.Status.Allocatable = quantity("1")
		web := podWithGPUs("web", "1")
		f := newFixture(t, "", nil, web, gpuClass(), node("a"), plain, node("c"), slice("a", "gpu-0"))
		var created []bool
		f.h.ObserveClaim = func(ok bool) { created = append(created, ok) }
		if got, want := f.filter(framework.NewCycleState(f.h), web), "a: fits, b: fits, c: cannot allocate all claims"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		if _, err := f.bind(web, "b"); err != nil || f.extendedClaims() != "" {
			t.Errorf("on a node with the resource: %v, claims %q", err, f.extendedClaims())
		}
		state, err := f.bind(web, "a")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := f.extendedClaims(), "web-extended-: a/gpu-0 for web protected"; got != want {
			t.Errorf("claims %s, want %s", got, want)
		}
		if !slices.Equal(created, []bool{true}) {
			t.Errorf("the metrics know of the creations %v", created)
		}
		claims, err := f.Fake.ResourceV1().ResourceClaims("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if owner := claims.Items[0].OwnerReferences[0]; owner.Name != "web" || owner.BlockOwnerDeletion != nil {
			t.Errorf("owner %+v, want the pod, whose deletion does not wait for the claim", owner)
		}
		bound, err := f.Fake.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		status := bound.Status.ExtendedResourceClaimStatus
		if status == nil || len(status.RequestMappings) != 1 || status.RequestMappings[0] != (v1.ContainerExtendedResourceRequest{
			ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "container-0-request-0",
		}) {
			t.Errorf("status %+v", status)
		}
		if got, want := f.filter(framework.NewCycleState(f.h), podWithGPUs("other", "1")), "a: cannot allocate all claims, b: fits, c: cannot allocate all claims"; got != want {
			t.Errorf("another pod: %s, want %s", got, want)
		}
		if got, want := f.filter(framework.NewCycleState(f.h), bound), "a: fits, b: resourceclaim not available on the node, c: resourceclaim not available on the node"; got != want {
			t.Errorf("the same pod again: %s, want %s", got, want)
		}
		f.Unreserve(t.Context(), state, framework.NewPodInfo(web), "a")
		if got := f.extendedClaims(); got != "" {
			t.Errorf("after the pod was not bound: claims %s", got)
		}
		controllertest.Eventually(t, func() string { return f.filter(framework.NewCycleState(f.h), podWithGPUs("other", "1")) },
			"a: fits, b: fits, c: cannot allocate all claims")
	})
}

// A scheduler that ended in PreBind leaves a claim that the pod's status does
// not name, so the kubelet would not know of the devices.
func TestStaleExtendedClaim(t *testing.T) {
	const deleted, kept = "deletion of ResourceClaim completed", "web-extended-: a/gpu-0 for web protected"
	for _, test := range []struct {
		name   string
		change func(*v1.Pod) // what the API has by PostFilter
		want   string        // of PostFilter
		claims string
	}{
		{"the pod waits", func(*v1.Pod) {}, deleted, ""},
		{"another scheduler has bound the pod", func(p *v1.Pod) { p.Spec.NodeName = "a" }, "may be in use", kept},
		{"another scheduler has told the pod", func(p *v1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "?"}
		}, "may be in use", kept},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := podWithGPUs("web", "1")
				f := newFixture(t, "", nil, web, gpuClass(), node("a"), slice("a", "gpu-0"))
				if _, err := f.bind(web, "a"); err != nil {
					t.Fatal(err)
				}
				name := f.pod("web").Status.ExtendedResourceClaimStatus.ResourceClaimName
				changed := web.DeepCopy()
				if test.change(changed); changed.Status.ExtendedResourceClaimStatus != nil {
					changed.Status.ExtendedResourceClaimStatus.ResourceClaimName = name
				}
				if err := f.Fake.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), changed, "shop"); err != nil {
					t.Fatal(err)
				}
				state := framework.NewCycleState(f.h)
				if got, want := f.filter(state, web), "UnschedulableAndUnresolvable: cannot schedule extended resource claim"; got != want {
					t.Errorf("%s, want %s", got, want)
				}
				_, s := f.PostFilter(t.Context(), state, framework.NewPodInfo(web), nil, nil)
				if !strings.Contains(s.Message(), test.want) || f.extendedClaims() != test.claims {
					t.Errorf("PostFilter: %s, claims %q; want %s, claims %q", s.Message(), f.extendedClaims(), test.want, test.claims)
				}
				if test.want != deleted {
					return
				}
				controllertest.Eventually(t, func() string { return f.filter(framework.NewCycleState(f.h), web) }, "a: fits")
				if _, err := f.bind(web, "a"); err != nil {
					t.Fatal(err)
				}
				if f.pod("web").Status.ExtendedResourceClaimStatus == nil || f.extendedClaims() != kept {
					t.Errorf("bound again: status %+v, claims %s", f.pod("web").Status, f.extendedClaims())
				}
			})
		})
	}
}

// Unreserve deletes its claim even if another client has changed the claim
// since PreBind.
func TestUnreserveOfChangedClaim(t *testing.T) {
	web := podWithGPUs("web", "1")
	f := newFixture(t, "", nil, web, gpuClass(), node("a"), slice("a", "gpu-0"))
	state, err := f.bind(web, "a")
	if err != nil {
		t.Fatal(err)
	}
	api := f.Fake.ResourceV1().ResourceClaims("shop")
	claim, err := api.Get(t.Context(), f.pod("web").Status.ExtendedResourceClaimStatus.ResourceClaimName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Labels = map[string]string{"changed": "true"}
	if _, err := api.Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Unreserve(t.Context(), state, framework.NewPodInfo(web), "a")
	if got := f.extendedClaims(); got != "" {
		t.Errorf("claims %s", got)
	}
}

// pod returns a pod as the API has it.
func (f *fixture) pod(name string) *v1.Pod {
	f.t.Helper()
	p, err := f.Fake.CoreV1().Pods("shop").Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func TestRequestsFor(t *testing.T) {
	container := func(name, count string) v1.Container {
		c := v1.Container{Name: name}
		if count != "" {
			c.Resources.Requests = quantity(count)
			c.Resources.Requests[v1.ResourceCPU] = resource.MustParse("1") // comes first
		}
		return c
	}
	sidecar := container("sidecar", "1")
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	for _, test := range []struct {
		name              string
		inits, containers []v1.Container
		requests, mapping string
	}{
		{"one", nil, []v1.Container{container("a", "2")}, "container-0-request-1=2", "a:container-0-request-1"},
		{"containers have their own", nil, []v1.Container{container("a", "1"), container("b", ""), container("c", "1")},
			"container-0-request-1=1 container-2-request-1=1", "a:container-0-request-1 c:container-2-request-1"},
		{"an init container leaves its devices to others", []v1.Container{container("i", "1")}, []v1.Container{container("a", "1")},
			"container-1-request-1=1", "a:container-1-request-1 i:container-1-request-1"},
		{"what is missing is shared", []v1.Container{container("i", "2"), container("j", "4"), container("k", "1")}, []v1.Container{container("a", "1")},
			"container-3-request-1=1 container-1-request-1=3",
			"a:container-3-request-1 i:container-3-request-1 i:container-1-request-1 j:container-3-request-1 j:container-1-request-1 k:container-3-request-1"},
		{"several later ones together", []v1.Container{container("i", "2"), sidecar, container("j", "1")}, []v1.Container{container("a", "1")},
			"container-1-request-1=1 container-3-request-1=1",
			"sidecar:container-1-request-1 a:container-3-request-1 i:container-1-request-1 i:container-3-request-1 j:container-3-request-1"},
		{"a sidecar keeps its devices", []v1.Container{sidecar, container("i", "1")}, nil,
			"container-0-request-1=1 container-1-request-1=1", "sidecar:container-0-request-1 i:container-1-request-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{InitContainers: test.inits, Containers: test.containers}}
			requests, mappings := requestsFor(p, "example.com/gpu", "gpu")
			var have, mapped []string
			for _, r := range requests {
				have = append(have, r.Name+"="+string('0'+byte(r.Exactly.Count)))
			}
			for _, m := range mappings {
				mapped = append(mapped, m.ContainerName+":"+m.RequestName)
			}
			if got := strings.Join(have, " "); got != test.requests {
				t.Errorf("requests %s, want %s", got, test.requests)
			}
			if got := strings.Join(mapped, " "); got != test.mapping {
				t.Errorf("mappings %s, want %s", got, test.mapping)
			}
		})
	}
}

func TestHints(t *testing.T) {
	f := newFixture(t, "", nil, class("any", ""), claim("c", "any"), claim("d", "other"))
	events, err := f.EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine, taken := claim("c", "any"), claim("c", "any", allocatedOn("a", "gpu-0"))
	waiting := framework.NewPodInfo(pod("web", "c"))
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"its claim is created", framework.ResourceClaim, framework.Add, nil, mine, framework.Queue},
		{"another claim is created", framework.ResourceClaim, framework.Add, nil, claim("d", "any"), framework.QueueSkip},
		{"its claim is allocated", framework.ResourceClaim, framework.UpdateOther, mine, taken, framework.Queue},
		{"its claim is labeled", framework.ResourceClaim, framework.UpdateOther, mine, mine.DeepCopy(), framework.QueueSkip},
		{"another claim is deallocated", framework.ResourceClaim, framework.UpdateOther, claim("d", "any", allocatedOn("a", "gpu-0")), claim("d", "any"), framework.Queue},
		{"another claim is deleted with its devices", framework.ResourceClaim, framework.Delete, claim("d", "any", allocatedOn("a", "gpu-0")), nil, framework.Queue},
		{"its class is created", framework.DeviceClass, framework.Add, nil, class("any", ""), framework.Queue},
		{"another class is created", framework.DeviceClass, framework.Add, nil, class("other", ""), framework.QueueSkip},
		{"devices come", framework.ResourceSlice, framework.Add, nil, slice("a", "gpu-0"), framework.Queue},
		{"a taint goes", framework.DeviceTaintRule, framework.Delete, &resourceapi.DeviceTaintRule{}, nil, framework.Queue},
		{"a node comes", framework.Node, framework.Add, nil, node("a"), framework.Queue},
		{"a node's taints change", framework.Node, framework.UpdateNodeTaint, node("a"), node("a"), framework.QueueSkip},
		{"a pod with claims leaves", framework.AssignedPod, framework.Delete, pod("other", "d"), nil, framework.Queue},
		{"a pod without claims leaves", framework.AssignedPod, framework.Delete, pod("other"), nil, framework.QueueSkip},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, happened := framework.QueueSkip, framework.ClusterEvent{Resource: test.resource, Action: test.action}
			for _, e := range events {
				if e.Event.Matches(happened) && (e.Hint == nil || e.Hint(waiting, test.old, test.new) == framework.Queue) {
					got = framework.Queue
				}
			}
			if got != test.want {
				t.Errorf("hint %d, want %d", got, test.want)
			}
		})
	}
}
