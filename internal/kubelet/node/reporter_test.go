package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientfake "k8s.io/client-go/kubernetes/fake"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/nodeaddress"
)

// server is an API server in memory. While hangs is set, writes of Leases and of
// node statuses do not return before their contexts end.
type server struct {
	kubernetes.Interface
	hangs atomic.Bool
	// fails makes writes of node statuses fail at once; failures counts them.
	fails    atomic.Bool
	failures atomic.Int32
	// silent makes reads of a Node not return before their contexts end; reads
	// counts them.
	silent atomic.Bool
	reads  atomic.Int32
}

func (s *server) hang(ctx context.Context) error {
	if !s.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *server) CoreV1() typedv1.CoreV1Interface { return core{s.Interface.CoreV1(), s} }
func (s *server) CoordinationV1() typedcoordinationv1.CoordinationV1Interface {
	return coordination{s.Interface.CoordinationV1(), s}
}

type core struct {
	typedv1.CoreV1Interface
	server *server
}

func (c core) Nodes() typedv1.NodeInterface { return nodes{c.CoreV1Interface.Nodes(), c.server} }

type nodes struct {
	typedv1.NodeInterface
	server *server
}

func (n nodes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*v1.Node, error) {
	if n.server.fails.Load() {
		n.server.failures.Add(1)
		return nil, apierrors.NewInternalError(errors.New("the storage is away"))
	}
	if err := n.server.hang(ctx); err != nil {
		return nil, err
	}
	return n.NodeInterface.Patch(ctx, name, kind, data, o, sub...)
}

func (n nodes) Get(ctx context.Context, name string, o metav1.GetOptions) (*v1.Node, error) {
	n.server.reads.Add(1)
	if n.server.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.NodeInterface.Get(ctx, name, o)
}

type coordination struct {
	typedcoordinationv1.CoordinationV1Interface
	server *server
}

func (c coordination) Leases(namespace string) typedcoordinationv1.LeaseInterface {
	return leases{c.CoordinationV1Interface.Leases(namespace), c.server}
}

type leases struct {
	typedcoordinationv1.LeaseInterface
	server *server
}

func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := l.server.hang(ctx); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Update(ctx, lease, o)
}

// restartingRuntime refuses configurations while it is down.
type restartingRuntime struct {
	*inmemory.Runtime
	down       atomic.Bool
	podCIDR    atomic.Value                                   // of the last configuration, a string
	conditions atomic.Pointer[[]*runtimeapi.RuntimeCondition] // nil: it is ready
}

func (r *restartingRuntime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	if conditions := r.conditions.Load(); conditions != nil {
		return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: *conditions}}, nil
	}
	return r.Runtime.Status(ctx, verbose)
}

func (r *restartingRuntime) UpdateRuntimeConfig(ctx context.Context, c *runtimeapi.RuntimeConfig) error {
	if r.down.Load() {
		return errors.New("connection refused")
	}
	r.podCIDR.Store(c.GetNetworkConfig().GetPodCidr())
	return r.Runtime.UpdateRuntimeConfig(ctx, c)
}

// run calls f with a Reporter that runs in a bubble of virtual time.
func run(t *testing.T, f func(t *testing.T, r *Reporter, s *server, runtime *restartingRuntime)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, container := &server{Interface: clientfake.NewSimpleClientset()}, &restartingRuntime{Runtime: inmemory.New()}
		c := Config{
			Configuration: &kubeletconfig.KubeletConfiguration{
				RegisterNode: new(true), MaxPods: 110, NodeStatusMaxImages: new(int32(50)), NodeLeaseDurationSeconds: 40,
				NodeStatusUpdateFrequency: metav1.Duration{Duration: 10 * time.Second}, NodeStatusReportFrequency: metav1.Duration{Duration: 5 * time.Minute},
			},
			Name: "alpha", IPs: nodeaddress.NewList("192.0.2.1"), Recorder: record.NewFakeRecorder(1000),
			Machine: &Fixed{Resources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}, Runtime: container, Images: container.Images(),
			Hooks: Hooks{
				Versions: func() (string, string) { return "simulated://1", "v1" }, Devices: func() (v1.ResourceList, v1.ResourceList) { return nil, nil },
				Pressure: func() []v1.NodeConditionType { return nil }, Registered: func() {},
				VolumesInUse: func() []v1.UniqueVolumeName { return nil }, Observed: func(_, _ *v1.Node) {},
			},
			Client: &client.Client{Kubernetes: s, Watch: func(schema.GroupVersionResource, string, fields.Selector) cache.SharedIndexInformer {
				return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						return s.CoreV1().Nodes().List(ctx, o)
					},
					WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
						return s.CoreV1().Nodes().Watch(ctx, o)
					},
				}, s.Interface), &v1.Node{}, 0, cache.Indexers{})
			}},
		}
		r, err := NewReporter(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		f(t, r, s, container)
	})
}

func (s *server) node(t *testing.T) *v1.Node {
	t.Helper()
	n, err := s.CoreV1().Nodes().Get(t.Context(), "alpha", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return n
}

// An API server that accepts a request and never answers it delays the next
// renewal of the lease by no more than the lease lasts, and does not keep the
// kubelet from ending.
func TestServerThatHangs(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, _ *restartingRuntime) {
		s.hangs.Store(true)
		time.Sleep(8*time.Minute + time.Second) // the next report is due meanwhile
		s.hangs.Store(false)
		back := time.Now()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		lease, err := s.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "alpha", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if lease.Spec.RenewTime.Time.Before(back) {
			t.Errorf("the lease was last renewed %v before the server was back", back.Sub(lease.Spec.RenewTime.Time))
		}
		if beat := s.node(t).Status.Conditions[0].LastHeartbeatTime.Time; beat.Before(back) {
			t.Errorf("the status was last written %v before the server was back", back.Sub(beat))
		}
		s.hangs.Store(true)
		r.RuntimeAnswered(errors.New("away")) // the status has to be written
		time.Sleep(35 * time.Second)
		synctest.Wait()
	})
}

// A healthy node renews its Lease, which the Node object owns, every few seconds, and
// writes its status every five minutes, the first time up to half of that earlier or later.
func TestLeaseIsRenewedMoreOftenThanTheStatus(t *testing.T) {
	run(t, func(t *testing.T, _ *Reporter, s *server, _ *restartingRuntime) {
		beat := func() time.Time { return s.node(t).Status.Conditions[0].LastHeartbeatTime.Time }
		first := beat()
		for range 4 { // the node has run for a minute, and an early report is due after 2.5
			time.Sleep(20 * time.Second)
			synctest.Wait()
			lease, err := s.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "alpha", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(lease.Spec.RenewTime.Time); age > 15*time.Second {
				t.Errorf("the lease was renewed %v ago", age)
			}
			if owners := lease.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != "alpha" {
				t.Errorf("owners of the lease: %+v", owners)
			}
			if !beat().Equal(first) {
				t.Error("the status was written although it did not change")
			}
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if beat().Equal(first) {
			t.Error("the status was not written for eight minutes")
		}
	})
}

// The sync loop waits for the newest Node. Many pods for which an API server is asked
// that does not answer do not keep it from the other pods.
func TestLatestAsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{Interface: clientfake.NewSimpleClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}})}
		r := &Reporter{config: Config{Name: "alpha", Client: &client.Client{Kubernetes: s}}}
		s.silent.Store(true)
		for range 100 {
			if n := r.Latest(); n != nil {
				t.Fatalf("a server that does not answer has the Node %v", n)
			}
		}
		if n := s.reads.Load(); n != 1 {
			t.Errorf("100 pods were waiting for %d questions", n)
		}
		s.silent.Store(false)
		time.Sleep(latestRest * maxLatest)
		for range 2 {
			if n := r.Latest(); n == nil || n.Name != "alpha" {
				t.Errorf("a server that answers again has the Node %v", n)
			}
		}
	})
}

// Nodes that start together do not report together, and each reports in time.
func TestReportsAreSpread(t *testing.T) {
	var after []time.Duration
	for range 8 {
		run(t, func(t *testing.T, _ *Reporter, s *server, _ *restartingRuntime) {
			beat := func() time.Time { return s.node(t).Status.Conditions[0].LastHeartbeatTime.Time }
			first := beat()
			next := func(from time.Time) time.Time {
				for range 60 {
					time.Sleep(10 * time.Second)
					synctest.Wait()
					if now := beat(); now.After(from) {
						return now
					}
				}
				t.Fatal("the status is not written for ten minutes")
				return from
			}
			second := next(first)
			after = append(after, second.Sub(first))
			if regular := next(second).Sub(second); regular < 5*time.Minute || regular > 5*time.Minute+20*time.Second {
				t.Errorf("the next report comes after %v", regular)
			}
		})
	}
	slices.Sort(after)
	if after[0] < 2*time.Minute || after[7] > 8*time.Minute || after[7]-after[0] < time.Minute/2 {
		t.Errorf("the first reports without a change come after %v", after)
	}
}

// Every failure is logged, so failures have to be rare. They end soon after the
// API server works again.
func TestFailingServerIsRetriedSlowly(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, runtime *restartingRuntime) {
		r.RuntimeAnswered(errors.New("away"))
		time.Sleep(runtimePatience + time.Minute)
		synctest.Wait()
		if n := s.node(t); readiness(&n.Status) == v1.ConditionTrue {
			t.Fatal("the node is ready without a runtime")
		}
		s.fails.Store(true)
		r.RuntimeAnswered(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.failures.Load(); n == 0 || n > 30 {
			t.Errorf("the status was written %d times in a minute", n)
		}
		s.fails.Store(false)
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		if n := s.node(t); readiness(&n.Status) != v1.ConditionTrue {
			t.Error("the node is not ready 5 s after the API server works again")
		}
	})
}

// A node is ready once its runtime says that it runs containers, and has a network for
// pods.
func TestRuntimeThatIsNotReady(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, runtime *restartingRuntime) {
		of := func(name string, ready bool) *runtimeapi.RuntimeCondition {
			return &runtimeapi.RuntimeCondition{Type: name, Status: ready, Reason: "R", Message: "m"}
		}
		const noNetwork = "container runtime network not ready: NetworkReady=false reason:R message:m"
		for _, test := range []struct {
			conditions    []*runtimeapi.RuntimeCondition
			want, network string
		}{
			{nil, "[container runtime not ready: RuntimeReady=false reason: message:, container runtime network not ready: NetworkReady=false reason: message:]",
				"container runtime network not ready: NetworkReady=false reason: message:"},
			{[]*runtimeapi.RuntimeCondition{of(runtimeapi.RuntimeReady, false), of(runtimeapi.NetworkReady, true)},
				"container runtime not ready: RuntimeReady=false reason:R message:m", ""},
			{[]*runtimeapi.RuntimeCondition{of(runtimeapi.NetworkReady, false), of(runtimeapi.RuntimeReady, true)}, noNetwork, noNetwork},
			{[]*runtimeapi.RuntimeCondition{of(runtimeapi.RuntimeReady, true), of(runtimeapi.NetworkReady, true)}, "kubelet is posting ready status", ""},
		} {
			runtime.conditions.Store(&test.conditions)
			r.Update()
			time.Sleep(time.Second)
			synctest.Wait()
			for _, c := range s.node(t).Status.Conditions {
				if c.Type == v1.NodeReady && c.Message != test.want {
					t.Errorf("the node is %s: %q, want %q", c.Status, c.Message, test.want)
				}
			}
			if got := r.NetworkNotReady(); got != test.network {
				t.Errorf("the network: %q, want %q", got, test.network)
			}
		}
	})
}

// A Node object that was deleted is created again.
func TestDeletedNodeIsRegisteredAgain(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, _ *restartingRuntime) {
		if err := s.CoreV1().Nodes().Delete(t.Context(), "alpha", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := s.node(t); n == nil || readiness(&n.Status) != v1.ConditionTrue {
			t.Errorf("half a minute later the node is %+v", n)
		}
		if r.Node() == nil {
			t.Error("the reporter has no node")
		}
	})
}

// The Node object of a cordoned node stays deleted, until somebody makes it again.
func TestRemovedNodeIsNotRegistered(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, _ *restartingRuntime) {
		cordoned := s.node(t).DeepCopy()
		cordoned.Spec.Unschedulable = true
		if _, err := s.CoreV1().Nodes().Update(t.Context(), cordoned, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.CoreV1().Nodes().Delete(t.Context(), "alpha", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, err := s.CoreV1().Nodes().Get(t.Context(), "alpha", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("an hour later: %v", err)
		}
		if _, err := s.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := s.node(t); readiness(&n.Status) != v1.ConditionTrue {
			t.Errorf("half a minute after it is there again: %+v", n.Status.Conditions)
		}
	})
}

// Volumes are attached also to a node whose object somebody else created.
func TestExistingNodeGetsTheAnnotationForAttaching(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, _ *restartingRuntime) {
		n := s.node(t).DeepCopy()
		n.Annotations = nil
		if _, err := s.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := r.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.node(t).Annotations; got["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" {
			t.Errorf("annotations %v", got)
		}
	})
}

// A runtime that is restarting when the node gets its pod CIDR receives the
// CIDR after the restart.
func TestPodCIDRReachesARestartedRuntime(t *testing.T) {
	run(t, func(t *testing.T, _ *Reporter, s *server, runtime *restartingRuntime) {
		runtime.down.Store(true)
		n := s.node(t).DeepCopy()
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.1.0.0/24", []string{"10.1.0.0/24", "fd00::/64"}
		if _, err := s.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		runtime.down.Store(false)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := runtime.podCIDR.Load(); got != "10.1.0.0/24,fd00::/64" {
			t.Errorf("the runtime has the pod CIDR %q", got)
		}
	})
}

// Addresses of one type are all kept, and those that are gone go.
func TestStatusPatchReplacesAddresses(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, _ *restartingRuntime) {
		n := s.node(t).DeepCopy()
		n.Status.Addresses = []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, {Type: v1.NodeInternalIP, Address: "192.0.2.99"}, {Type: v1.NodeExternalIP, Address: "198.51.100.1"},
		}
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse})
		if _, err := s.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the reporter knows them
		r.Update()
		synctest.Wait()
		got := s.node(t).Status
		if len(got.Addresses) != 2 || got.Addresses[0].Address != "192.0.2.1" || got.Addresses[1].Type != v1.NodeHostName {
			t.Errorf("addresses %v", got.Addresses)
		}
		if last := got.Conditions[len(got.Conditions)-1]; last.Type != v1.NodeNetworkUnavailable {
			t.Errorf("a condition of another component is gone: %v", got.Conditions)
		}
	})
}

// An event tells of a node whose machine was started again, once.
func TestRebootedNode(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, _ *restartingRuntime) {
		n := s.node(t).DeepCopy()
		n.Status.NodeInfo.BootID = "first"
		if _, err := s.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the reporter knows it
		r.config.Machine.(*Fixed).System.BootID = "second"
		for range 2 {
			r.Update()
			synctest.Wait()
		}
		var got []string
		for events := r.config.Recorder.(*record.FakeRecorder).Events; len(events) > 0; {
			if e := <-events; strings.Contains(e, "Rebooted") {
				got = append(got, e)
			}
		}
		if want := []string{"Warning Rebooted Node alpha has been rebooted, boot id: second"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// Events tell of a node that is cordoned, and of the end of that.
func TestCordonedNode(t *testing.T) {
	run(t, func(t *testing.T, r *Reporter, s *server, _ *restartingRuntime) {
		for _, cordoned := range []bool{true, true, false} {
			n := s.node(t).DeepCopy()
			n.Spec.Unschedulable = cordoned
			if _, err := s.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		var got []string
		for events := r.config.Recorder.(*record.FakeRecorder).Events; len(events) > 0; {
			if e := <-events; strings.Contains(e, "Schedulable") {
				got = append(got, e)
			}
		}
		want := []string{"Normal NodeNotSchedulable Node alpha status is now: NodeNotSchedulable", "Normal NodeSchedulable Node alpha status is now: NodeSchedulable"}
		if !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// A node that does not measure its pods' use of the disk offers none of it.
func TestCapacityWithoutLocalStorage(t *testing.T) {
	machine := &Fixed{Resources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}}
	for _, isolated := range []*bool{nil, new(true), new(false)} {
		c := &Config{Machine: machine, Configuration: &kubeletconfig.KubeletConfiguration{LocalStorageCapacityIsolation: isolated}}
		list, err := c.capacity()
		if err != nil {
			t.Fatal(err)
		}
		if _, got := list[v1.ResourceEphemeralStorage]; got == (isolated != nil && !*isolated) || len(machine.Resources) != 2 {
			t.Errorf("isolated %v: the capacity is %v", isolated, list)
		}
	}
}
