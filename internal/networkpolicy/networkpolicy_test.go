package networkpolicy

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientfake "k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// kernel is a Backend that remembers what was applied, and fails on demand.
type kernel struct {
	fails   error
	applied Rules
	lost    bool
	count   int
	former  []netip.Addr // isolated by an earlier process
}

func (k *kernel) Apply(r Rules) error {
	if k.fails == nil {
		k.applied, k.lost = r, false
		k.count++
	}
	return k.fails
}
func (k *kernel) Intact() (bool, error) { return !k.lost, nil }
func (k *kernel) Remove() error         { return nil }

func (k *kernel) Isolated() ([]netip.Addr, error) { return k.former, nil }

// bench is an enforcer in virtual time, whose informers get what sources have.
// The policies that the API lists are in api: the watches may be behind.
type bench struct {
	*testing.T
	*Enforcer
	kernel  *kernel
	sources map[string]*cachetesting.FakeControllerSource
	api     *clientfake.Clientset
	group   *supervise.Group
}

func run(t *testing.T, f func(b *bench)) {
	t.Helper()
	runAfter(t, nil, f)
}

// runAfter is run after an earlier process has isolated addresses.
func runAfter(t *testing.T, isolated []netip.Addr, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, kernel: &kernel{former: isolated}, sources: map[string]*cachetesting.FakeControllerSource{}, api: clientfake.NewClientset()}
		kinds := map[string]runtime.Object{"networkpolicies": &networkingv1.NetworkPolicy{}, "namespaces": &v1.Namespace{}, "pods": &v1.Pod{}}
		for name := range kinds {
			b.sources[name] = cachetesting.NewFakeControllerSource()
			defer b.sources[name].Shutdown()
		}
		b.Enforcer = New(Config{NodeName: "here", Backend: b.kernel})
		api := &client.Client{Kubernetes: b.api, Watch: func(r schema.GroupVersionResource, _ string, _ fields.Selector) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(b.sources[r.Resource], kinds[r.Resource], 0, nil)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		b.group = supervise.NewGroup(supervise.Options{})
		b.group.Go(ctx, "network-policy", func(ctx context.Context) error { return b.Enforcer.Run(ctx, api) })
		defer b.group.Wait()
		defer cancel()
		synctest.Wait()
		f(b)
	})
}

func (b *bench) add(resource string, o runtime.Object) {
	b.sources[resource].Add(o)
	synctest.Wait()
}

// admit runs Admit and returns its error once it has one.
func (b *bench) admit(p *v1.Pod, static bool, ip string) func() (returned bool, err error) {
	answer := make(chan error, 1)
	go func() { answer <- b.Admit(b.Context(), p, static, []string{ip}) }()
	return func() (bool, error) {
		synctest.Wait()
		select {
		case err := <-answer:
			return true, err
		default:
			return false, nil
		}
	}
}

func podOf(name string, labels map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID("uid-" + name), Labels: labels}, Spec: v1.PodSpec{NodeName: "here"}}
}

func denyAll() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "deny", ResourceVersion: "1"},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}, PolicyTypes: []networkingv1.PolicyType{"Ingress"}},
	}
}

var first = netip.MustParseAddr("10.1.0.2")

func TestAdmitWaitsForTheKernel(t *testing.T) {
	run(t, func(b *bench) {
		b.add("networkpolicies", denyAll())
		p := podOf("one", map[string]string{"a": "1"})
		returned := b.admit(p, false, "10.1.0.2")
		if ok, _ := returned(); ok {
			t.Fatal("admitted a pod that the watch has not shown yet")
		}
		b.kernel.fails = errors.New("no memory")
		b.add("pods", p)
		if ok, _ := returned(); ok {
			t.Fatal("admitted a pod whose rules the kernel has refused")
		}
		status, _ := b.group.Status()
		if c := status.Components[0].Conditions; len(c) != 1 || c[0].Name != Condition || c[0].Message != "no memory" {
			t.Errorf("conditions %v", c)
		}
		b.kernel.fails = nil
		time.Sleep(time.Second)
		if ok, err := returned(); !ok || err != nil || b.kernel.applied.Pods[first].Ingress == nil {
			t.Errorf("admitted %v, %v with %v", ok, err, b.kernel.applied.Pods)
		}
		if status, _ := b.group.Status(); len(status.Components[0].Conditions) > 0 {
			t.Errorf("conditions %v", status.Components[0].Conditions)
		}
		// A container that starts again does not wait, whatever fails.
		b.kernel.fails = errors.New("no memory")
		b.add("pods", podOf("other", nil))
		if ok, err := b.admit(p, false, "10.1.0.2")(); !ok || err != nil {
			t.Errorf("admitted again: %v, %v", ok, err)
		}
		// A pod whose rules are not applied in time is refused, with the
		// reason.
		returned = b.admit(podOf("other", nil), false, "10.1.0.3")
		time.Sleep(10 * time.Second)
		if ok, err := returned(); !ok || !errors.Is(err, errLate) || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("admitted %v, %v", ok, err)
		}
	})
}

// TestAdmitWaitsForPolicies checks that a pod waits for a policy that the API had
// before it, and whose watch is late.
func TestAdmitWaitsForPolicies(t *testing.T) {
	run(t, func(b *bench) {
		if err := b.api.Tracker().Add(denyAll()); err != nil {
			t.Fatal(err)
		}
		p := podOf("one", map[string]string{"a": "1"})
		b.add("pods", p)
		returned := b.admit(p, false, "10.1.0.2")
		if ok, _ := returned(); ok {
			t.Fatal("admitted a pod without its policy")
		}
		b.add("networkpolicies", denyAll())
		if ok, err := returned(); !ok || err != nil || b.kernel.applied.Pods[first].Ingress == nil {
			t.Errorf("admitted %v, %v with %v", ok, err, b.kernel.applied.Pods)
		}
	})
}

// TestAddressOfAnotherPod checks that an address has the rights of the pod that
// got it last, while the former pod still has it in its status.
func TestAddressOfAnotherPod(t *testing.T) {
	run(t, func(b *bench) {
		b.add("networkpolicies", denyAll())
		former, next := podOf("former", nil), podOf("next", map[string]string{"a": "1"})
		former.Status.PodIPs = []v1.PodIP{{IP: "10.1.0.2"}}
		b.add("pods", former)
		b.add("pods", next)
		for range 2 {
			if ok, err := b.admit(next, false, "10.1.0.2")(); !ok || err != nil || b.kernel.applied.Pods[first].Ingress == nil || b.kernel.applied.Owners[first] != next.UID {
				t.Errorf("admitted %v, %v with %v of %v", ok, err, b.kernel.applied.Pods, b.kernel.applied.Owners)
			}
		}
		b.sources["pods"].Delete(next)
		synctest.Wait()
		if owner := b.kernel.applied.Owners[first]; owner != former.UID || len(b.kernel.applied.Pods) > 0 {
			t.Errorf("owner %v with %v", owner, b.kernel.applied.Pods)
		}
	})
}

func TestStaticPods(t *testing.T) {
	run(t, func(b *bench) {
		b.add("networkpolicies", denyAll())
		p := podOf("static", map[string]string{"a": "1"})
		if ok, err := b.admit(p, true, "10.1.0.2")(); !ok || err != nil || b.kernel.applied.Pods[first].Ingress == nil {
			t.Errorf("admitted %v, %v with %v", ok, err, b.kernel.applied.Pods)
		}
		mirror := p.DeepCopy()
		mirror.UID, mirror.Labels, mirror.Annotations = "mirror", nil, map[string]string{v1.MirrorPodAnnotationKey: "1"}
		b.add("pods", mirror)
		if b.kernel.applied.Owners[first] != p.UID || len(b.kernel.applied.Pods) > 0 {
			t.Errorf("after its mirror pod has come: %v with %v", b.kernel.applied.Owners, b.kernel.applied.Pods)
		}
	})
}

// TestPodThatIsGoneStaysClosed checks that the address of an isolated pod that was
// deleted by force, or has failed, stays closed: its processes may run on. The pod
// that gets the address next has its own rights.
func TestPodThatIsGoneStaysClosed(t *testing.T) {
	for name, end := range map[string]func(b *bench, p *v1.Pod){
		"deleted": func(b *bench, p *v1.Pod) { b.sources["pods"].Delete(p) },
		"failed": func(b *bench, p *v1.Pod) {
			p = p.DeepCopy()
			p.Status.Phase = v1.PodFailed
			b.sources["pods"].Modify(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.add("networkpolicies", denyAll())
				p, next := podOf("one", map[string]string{"a": "1"}), podOf("next", nil)
				b.add("pods", p)
				if ok, err := b.admit(p, false, "10.1.0.2")(); !ok || err != nil {
					t.Fatalf("admitted %v, %v", ok, err)
				}
				end(b, p)
				synctest.Wait()
				if i := b.kernel.applied.Pods[first]; i.Ingress == nil || i.Egress == nil || len(i.Ingress)+len(i.Egress) > 0 {
					t.Errorf("the address has %v", b.kernel.applied.Pods)
				}
				b.add("pods", next)
				if ok, err := b.admit(next, false, "10.1.0.2")(); !ok || err != nil || len(b.kernel.applied.Pods) > 0 {
					t.Errorf("the next pod: admitted %v, %v with %v", ok, err, b.kernel.applied.Pods)
				}
			})
		})
	}
}

// TestAddressThatTheAPIHasNotYet checks that the address of a pod whose containers
// an earlier process has started stays closed until the pod's status says whose it
// is.
func TestAddressThatTheAPIHasNotYet(t *testing.T) {
	runAfter(t, []netip.Addr{first}, func(b *bench) {
		b.add("networkpolicies", denyAll())
		p := podOf("one", map[string]string{"a": "1"})
		b.add("pods", p)
		if i := b.kernel.applied.Pods[first]; i.Ingress == nil || i.Egress == nil || len(i.Ingress)+len(i.Egress) > 0 {
			t.Errorf("before the status is written the address has %v", b.kernel.applied.Pods)
		}
		p = p.DeepCopy()
		p.Status.PodIPs = []v1.PodIP{{IP: "10.1.0.2"}}
		b.sources["pods"].Modify(p)
		synctest.Wait()
		if i := b.kernel.applied.Pods[first]; len(i.Ingress) != 1 || i.Egress != nil {
			t.Errorf("the address has %v, want its policy", b.kernel.applied.Pods)
		}
	})
}

// TestMirrorPodThatIsGone checks that a static pod stays isolated when its mirror
// pod is deleted.
func TestMirrorPodThatIsGone(t *testing.T) {
	run(t, func(b *bench) {
		b.add("networkpolicies", denyAll())
		p := podOf("static", map[string]string{"a": "1"})
		if ok, err := b.admit(p, true, "10.1.0.2")(); !ok || err != nil {
			t.Fatalf("admitted %v, %v", ok, err)
		}
		mirror := p.DeepCopy()
		mirror.UID, mirror.Annotations = "mirror", map[string]string{v1.MirrorPodAnnotationKey: "1"}
		b.add("pods", mirror)
		b.sources["pods"].Delete(mirror)
		synctest.Wait()
		if b.kernel.applied.Pods[first].Ingress == nil {
			t.Errorf("the static pod has %v", b.kernel.applied.Pods)
		}
	})
}

// TestContainerStartsWithoutTheAPI checks that a sandbox whose addresses are in the
// status of its pod needs no answer of the API: an enforcer that starts anew does
// not keep containers from starting again.
func TestContainerStartsWithoutTheAPI(t *testing.T) {
	run(t, func(b *bench) {
		b.api.PrependReactor("list", "networkpolicies", func(clientgotesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		b.add("networkpolicies", denyAll())
		p := podOf("one", map[string]string{"a": "1"})
		p.Status.PodIPs = []v1.PodIP{{IP: "10.1.0.2"}}
		b.add("pods", p)
		if ok, err := b.admit(p, false, "10.1.0.2")(); !ok || err != nil || b.kernel.applied.Pods[first].Ingress == nil {
			t.Errorf("admitted %v, %v with %v", ok, err, b.kernel.applied.Pods)
		}
	})
}

func TestWritesLostRulesAgain(t *testing.T) {
	run(t, func(b *bench) {
		b.kernel.lost = true
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if b.kernel.lost {
			t.Error("rules that were lost have not been applied again")
		}
		before := b.kernel.count
		time.Sleep(time.Minute)
		if b.kernel.count != before {
			t.Error("rules are applied without a change")
		}
	})
}

func TestAppliesOnceAfterAFailure(t *testing.T) {
	run(t, func(b *bench) {
		b.kernel.fails = errors.New("no memory")
		b.add("networkpolicies", denyAll())
		b.kernel.fails = nil
		before := b.kernel.count
		b.add("pods", podOf("one", map[string]string{"a": "1"}))
		time.Sleep(time.Minute)
		if got := b.kernel.count - before; got != 1 {
			t.Errorf("a change before the retry is applied %d times", got)
		}
	})
}

// The node keeps of policies and namespaces what the rules depend on.
func TestReducedPoliciesAndNamespaces(t *testing.T) {
	large := strings.Repeat("x", 1000)
	meta := metav1.ObjectMeta{
		Namespace: "default", Name: "one", ResourceVersion: "7", CreationTimestamp: metav1.Unix(1, 0), Annotations: map[string]string{"a": large},
	}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}}},
	}}
	policy.Labels = map[string]string{"a": large}
	kept, err := reduce(policy)
	if err != nil {
		t.Fatal(err)
	}
	reduced := kept.(*networkingv1.NetworkPolicy)
	got, want := compile(reduced), compile(policy)
	if !reflect.DeepEqual(got.policy, want.policy) || got.name != want.name || got.version != want.version || got.created != want.created || got.size != want.size {
		t.Errorf("compiled %+v, want %+v", got, want)
	}
	namespace := &v1.Namespace{ObjectMeta: meta}
	namespace.Labels = map[string]string{"team": "a"}
	keptNamespace, err := reduce(namespace)
	if err != nil || keptNamespace.(*v1.Namespace).Name != "one" || keptNamespace.(*v1.Namespace).Labels["team"] != "a" {
		t.Errorf("%v, %v", keptNamespace, err)
	}
	if n := reduced.Size() + keptNamespace.(*v1.Namespace).Size(); n >= 1000 {
		t.Errorf("the node keeps %d bytes", n)
	}
}

// The node keeps of the pods of other nodes what policies depend on.
func TestReducedPods(t *testing.T) {
	s := newState("here")
	p := podOf("one", map[string]string{"a": "1"})
	p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: strings.Repeat("x", 1000), "large": strings.Repeat("x", 1000)}
	p.DeletionTimestamp, p.CreationTimestamp = new(metav1.Unix(2, 0)), metav1.Unix(1, 0)
	p.Status.PodIPs = []v1.PodIP{{IP: "10.1.0.2"}, {IP: "fd00::2"}}
	p.Status.Message = strings.Repeat("x", 1000)
	ports := func(name string, number int32) []v1.ContainerPort {
		return []v1.ContainerPort{{ContainerPort: 1}, {Name: name, ContainerPort: number}, {Name: name, ContainerPort: number, Protocol: v1.ProtocolUDP}}
	}
	p.Spec.Containers = []v1.Container{{Name: "plain", Image: "x"}, {Name: "web", Image: "x", Ports: ports("web", 80)}}
	p.Spec.InitContainers = []v1.Container{{Name: "init", Args: []string{strings.Repeat("x", 1000)}, Ports: ports("init", 81)}}
	kept, err := reduce(p)
	if err != nil {
		t.Fatal(err)
	}
	reduced := kept.(*v1.Pod)
	if n := reduced.Size(); n >= 1000 {
		t.Errorf("the node keeps %d bytes: %v", n, reduced)
	}
	if got, want := s.read(reduced), s.read(p); !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
	for name, change := range map[string]func(p *v1.Pod){
		"in the host's network": func(p *v1.Pod) { p.Spec.HostNetwork = true },
		"ended":                 func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded },
		"without a node":        func(p *v1.Pod) { p.Spec.NodeName = "" },
	} {
		other := p.DeepCopy()
		other.Labels = map[string]string{"a": strings.Repeat("x", 1000)}
		change(other)
		kept, err := reduce(other)
		if err != nil {
			t.Fatal(err)
		}
		if s.read(kept.(*v1.Pod)) != nil {
			t.Errorf("a pod that is %s has addresses of its own", name)
		}
		if n := kept.(*v1.Pod).Size(); n >= 500 {
			t.Errorf("of a pod that is %s, the node keeps %d bytes", name, n)
		}
	}
	if kept, err := reduce(cache.DeletedFinalStateUnknown{Key: "x/one"}); err != nil || kept != (cache.DeletedFinalStateUnknown{Key: "x/one"}) {
		t.Errorf("another object: %v, %v", kept, err)
	}
}
