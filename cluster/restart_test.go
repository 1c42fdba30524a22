package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/kubelet"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	machine "github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/supervise"
)

// fragile is a cluster in memory, with a proxy and a DNS server, whose
// components can be made to fail.
type fragile struct {
	*controlPlane
	t     *testing.T
	kube  kubernetes.Interface
	store *fragileStore
	mu    sync.Mutex // guards fuses
	fuses map[string]chan func(context.Context)
}

// fragileStore can panic in the goroutine of a caller of its revision.
type fragileStore struct {
	store.Store
	lit atomic.Bool
}

func (s *fragileStore) CurrentRevision(ctx context.Context) (int64, error) {
	if s.lit.CompareAndSwap(true, false) {
		panic("injected")
	}
	return s.Store.CurrentRevision(ctx)
}

// kernel is a proxy.Backend that applies nothing.
type kernel struct{ applied atomic.Int64 }

func (k *kernel) Apply(proxy.Rules) error { k.applied.Add(1); return nil }
func (*kernel) Intact() (bool, error)     { return true, nil }
func (*kernel) Remove() error             { return nil }

// fuse makes a component fail when it is lit, in a goroutine of its own.
func (f *fragile) fuse(name string, run func(context.Context) error) func(context.Context) error {
	lit := make(chan func(context.Context), 1)
	f.mu.Lock()
	f.fuses[name] = lit
	f.mu.Unlock()
	return func(ctx context.Context) error {
		supervise.Go(ctx, func() {
			select {
			case <-ctx.Done():
			case fail := <-lit:
				fail(ctx)
			}
		})
		return run(ctx)
	}
}

func startFragile(t *testing.T) *fragile { return startFragileWith(t, func(*controlPlane) {}) }

func startFragileWith(t *testing.T, configure func(*controlPlane)) *fragile {
	t.Helper()
	o, err := complete(Options{
		DataDir: t.TempDir(), NodeName: "n1", AdvertiseAddress: net.IPv4(127, 0, 0, 1),
		Ports: Ports{Manager: freeport.For(t), Scheduler: freeport.For(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := configurePlane(o)
	if err != nil {
		t.Fatal(err)
	}
	c := newControlPlane(configuration)
	configure(c)
	t.Cleanup(c.close)
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	f := &fragile{controlPlane: c, t: t, store: &fragileStore{Store: mem.New()}, fuses: map[string]chan func(context.Context){}}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		c.group.Wait()
	})
	if err := c.startAPIServer(ctx, f.store); err != nil {
		t.Fatal(err)
	}
	f.kube = c.Client()
	dns := component.NewDNS()
	dns.Addresses, dns.Port, dns.MetricsPort, dns.NodeName, dns.Announce = []string{"127.0.0.1"}, freeport.For(t), 0, "n1", nil
	runtime, disk, groups := inmemory.New(), &files.Memory{}, &cgroup.Memory{}
	settings := *c.settings
	settings.Node = &NodeOptions{}
	node := &Node{settings: &settings, kubelet: component.NewKubelet(), ready: make(chan struct{})}
	node.kubelet.Config.NodeName = "n1"
	for name, run := range map[string]func(context.Context) error{
		"podnet": c.servers.with(node.follow),
		"kubelet": c.servers.with(func(ctx context.Context, p client.Provider) error {
			own, err := node.own(p)
			if err != nil {
				return err
			}
			config := kubelet.Config{
				NodeName: "n1", NodeIPs: []string{"192.0.2.1"}, RootDirectory: "/var/lib/kubelet", Client: own,
				Runtime: runtime, Images: runtime.Images(), Files: disk, Mounter: disk, Groups: groups,
				Machine: &machine.Fixed{Resources: v1.ResourceList{
					v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("500")}},
			}
			config.Configuration.EnableServer = new(bool)
			k, err := kubelet.New(config)
			if err != nil {
				return err
			}
			return k.Run(ctx)
		}),
		"events":             func(ctx context.Context) error { return c.events.run(ctx, f.kube) },
		"pki":                c.keys.Run,
		"controller-manager": c.servers.with(c.manager.RunWith),
		"scheduler":          c.servers.with(c.scheduler.RunWith),
		"dns":                c.servers.with(dns.RunWith),
		"proxy": c.servers.with(func(ctx context.Context, p client.Provider) error {
			own, err := p.As("system:kube-proxy")
			if err != nil {
				return err
			}
			return proxy.New(proxy.Config{Client: own, NodeName: "n1", Backend: &kernel{}}).Run(ctx)
		}),
	} {
		c.group.Go(ctx, name, f.fuse(name, run))
	}
	return f
}

func (f *fragile) component(name string) supervise.Component {
	status, _ := f.group.Status()
	for _, c := range status.Components {
		if c.Name == name {
			return c
		}
	}
	return supervise.Component{}
}

// patience bounds the wait for a condition. It says nothing of speed.
const patience = 2 * time.Minute

// eventually waits for a condition, and fails the test if it does not come true.
func (f *fragile) eventually(what string, condition func() bool) {
	f.t.Helper()
	err := wait.PollUntilContextTimeout(f.t.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		status, _ := f.group.Status()
		f.t.Fatalf("%s: not within %v; %+v", what, patience, status)
	}
}

// works creates a deployment and waits until the controllers have created its
// pod and the scheduler has placed it.
func (f *fragile) works(name string) {
	f.t.Helper()
	labels := map[string]string{"app": name}
	_, err := f.kube.AppsV1().Deployments("default").Create(f.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.eventually("a pod of "+name+" on a node", func() bool {
		pods, err := f.kube.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		return err == nil && len(pods.Items) == 1 && pods.Items[0].Spec.NodeName != ""
	})
}

// runs waits until the pod of a deployment is Ready, and returns the id of its
// container.
func (f *fragile) runs(name string) (id string) {
	f.t.Helper()
	f.eventually("the pod of "+name+" is Ready", func() bool {
		pods, err := f.kube.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil || len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
			return false
		}
		id = pods.Items[0].Status.ContainerStatuses[0].ContainerID
		return pods.Items[0].Status.ContainerStatuses[0].Ready
	})
	return id
}

// load writes and reads until it is ended. It records the acknowledged writes
// and the failed requests.
type load struct {
	cancel       context.CancelFunc
	done         sync.WaitGroup
	acknowledged []string
	failed       []error
}

func (f *fragile) load(during string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	maps := f.kube.CoreV1().ConfigMaps("default")
	l.done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("%s-%d", during, i)
			_, err := maps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err == nil {
				l.acknowledged = append(l.acknowledged, name)
				_, err = maps.Get(ctx, name, metav1.GetOptions{})
			}
			if err != nil && ctx.Err() == nil {
				l.failed = append(l.failed, err)
			}
		}
	})
	return l
}

// end ends the load and checks that no acknowledged write was lost.
func (l *load) end(f *fragile) {
	f.t.Helper()
	l.cancel()
	l.done.Wait()
	there, err := f.kube.CoreV1().ConfigMaps("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range there.Items {
		names[m.Name] = true
	}
	for _, name := range l.acknowledged {
		if !names[name] {
			f.t.Errorf("%s was acknowledged and is lost", name)
		}
	}
	f.t.Logf("%d writes acknowledged, %d requests failed", len(l.acknowledged), len(l.failed))
}

// TestOneComponentFailsAndTheOthersGoOn fails each component by a panic and by
// an error, under load: the API goes on serving, and the component works again.
func TestOneComponentFailsAndTheOthersGoOn(t *testing.T) {
	defer leaktest.Check(t, goleak.IgnoreCurrent())
	t.Run("faults", func(t *testing.T) {
		f := startFragile(t)
		f.node()
		f.works("at-first")
		first := f.runs("at-first")
		for _, name := range []string{"controller-manager", "scheduler", "proxy", "dns", "events", "pki", "kubelet", "podnet"} {
			for fault, fail := range map[string]func(context.Context){
				"panic": func(context.Context) { panic("injected") },
				"error": func(ctx context.Context) { supervise.Fail(ctx, errors.New("injected")) },
			} {
				l := f.load(name + "-" + fault)
				before := f.component(name)
				f.fuses[name] <- fail
				f.eventually(name+" is back", func() bool {
					c := f.component(name)
					return c.Restarts == before.Restarts+1 && c.Phase == supervise.Running
				})
				f.works(name + "-" + fault)
				l.end(f)
				if now := f.runs("at-first"); now != first {
					t.Errorf("%s of %s: the container %s was replaced by %s", fault, name, first, now)
				}
				if len(l.failed) > 0 || len(l.acknowledged) == 0 {
					t.Errorf("%s of %s: %d writes acknowledged, %d requests failed meanwhile, such as %v", fault, name, len(l.acknowledged), len(l.failed), l.failed[:min(1, len(l.failed))])
				}
				status, _ := f.group.Status()
				for _, other := range status.Components {
					if !strings.HasPrefix(other.Name, name) && strings.Contains(other.LastError, "injected") && other.LastErrorTime.After(before.Since) && other.LastErrorTime.After(f.component(name).LastErrorTime.Add(-time.Millisecond)) {
						t.Errorf("%s of %s reached %+v", fault, name, other)
					}
				}
			}
		}
		f.checkEvents()
	})
}

// checkEvents checks the events about failures.
func (f *fragile) checkEvents() {
	f.t.Helper()
	f.eventually("events of failures", func() bool {
		list, err := f.kube.CoreV1().Events("").List(f.t.Context(), metav1.ListOptions{})
		seen := map[string]bool{}
		for _, e := range list.Items {
			seen[e.Reason] = true
		}
		return err == nil && seen["ComponentPanicked"] && seen["ComponentFailed"] && seen["ComponentRestarted"]
	})
	i, _ := f.servers.get()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, i.admin.Config.Host+"/metrics", http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	answer, err := f.servers.RoundTrip(request)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, want := range []string{`coracle_component_panics_total{component="scheduler"} 1`, `coracle_component_restarts_total{component="scheduler"} 2`} {
		if !strings.Contains(string(text), want) {
			f.t.Errorf("/metrics has no %s", want)
		}
	}
}

// node creates a node and waits until pods can be created and placed on it.
func (f *fragile) node() {
	f.t.Helper()
	if _, err := f.kube.CoreV1().Nodes().Create(f.t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("500")},
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) { // by the kubelet
		f.t.Fatal(err)
	}
	f.eventually("the default service account", func() bool {
		_, err := f.kube.CoreV1().ServiceAccounts("default").Get(f.t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	f.eventually("a node without taints", func() bool {
		n, err := f.kube.CoreV1().Nodes().Get(f.t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			return false
		}
		return len(n.Spec.Taints) == 0
	})
}

// TestALostLeaseLeavesTheOthersAlone checks that a lost leader lease ends the
// work of its component alone. The others keep watching, and the component
// works again once it leads again.
func TestALostLeaseLeavesTheOthersAlone(t *testing.T) {
	defer leaktest.Check(t, goleak.IgnoreCurrent())
	t.Run("leases", func(t *testing.T) {
		f := startFragileWith(t, func(c *controlPlane) {
			for _, l := range []*componentbaseconfig.LeaderElectionConfiguration{&c.manager.Leader.Configuration, &c.scheduler.Configuration.LeaderElection} {
				l.LeaderElect, l.LeaseDuration.Duration, l.RenewDeadline.Duration, l.RetryPeriod.Duration = new(true), time.Second, 600*time.Millisecond, 50*time.Millisecond
			}
		})
		f.node()
		f.works("at-first")
		leases := f.kube.CoordinationV1().Leases("kube-system")
		for round := range 2 {
			for _, name := range []string{"kube-scheduler", "kube-controller-manager"} {
				steal := []byte(`{"spec":{"holderIdentity":"thief","renewTime":"` + time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") + `"}}`)
				if _, err := leases.Patch(t.Context(), name, types.MergePatchType, steal, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				f.eventually(name+" leads again", func() bool {
					l, err := leases.Get(t.Context(), name, metav1.GetOptions{})
					return err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "thief" && *l.Spec.HolderIdentity != ""
				})
				f.works(fmt.Sprintf("%s-%d", name, round))
			}
		}
		for _, name := range []string{"apiserver", "proxy", "dns", "scheduler", "controller-manager"} {
			if c := f.component(name); c.Restarts != 0 || c.Phase != supervise.Running {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestAnAPIServerIsFollowedByAnother checks that an API server that panics as a
// whole is replaced by another instance on the same store, and the other
// components use that.
func TestAnAPIServerIsFollowedByAnother(t *testing.T) {
	defer leaktest.Check(t, goleak.IgnoreCurrent())
	t.Run("panics", func(t *testing.T) {
		f := startFragile(t)
		maps := f.kube.CoreV1().ConfigMaps("default")
		for i := range 3 {
			name := fmt.Sprintf("kept-%d", i)
			if _, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			before := f.component("apiserver")
			f.store.lit.Store(true)
			f.eventually("a new API server", func() bool {
				_, _ = maps.List(t.Context(), metav1.ListOptions{}) // asks the store for its revision
				return f.component("apiserver").Restarts > before.Restarts
			})
			f.eventually("the API server answers", func() bool {
				_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
				return err == nil
			})
			f.eventually("the controllers work on it", func() bool {
				_, err := f.kube.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				if err != nil && !strings.Contains(err.Error(), "exists") {
					return false
				}
				_, err = f.kube.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
				return err == nil
			})
		}
	})
}
