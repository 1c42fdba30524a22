package devicemanager

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
)

const devices = "example.com/device"

// fakePlugin is a device plugin at a socket of its own.
type fakePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	options *pluginapi.DevicePluginOptions
	updates chan []*pluginapi.Device
	server  *grpc.Server

	mu        sync.Mutex // guards what follows
	allocated [][]string
	prepared  [][]string
	prefer    func(available []string, n int) []string
	fails     error
}

func (p *fakePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return p.options, nil
}

func (p *fakePlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		select {
		case list := <-p.updates:
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (p *fakePlugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.GetContainerRequests()[0]
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{
		{DeviceIDs: p.prefer(q.GetAvailableDeviceIDs(), int(q.GetAllocationSize()))},
	}}, nil
}

func (p *fakePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	p.allocated = append(p.allocated, ids)
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
		Envs:        map[string]string{"DEVICE": ids[0]},
		Mounts:      []*pluginapi.Mount{{ContainerPath: "/opt/driver", HostPath: "/usr/lib/driver", ReadOnly: true}},
		Devices:     []*pluginapi.DeviceSpec{{ContainerPath: "/dev/" + ids[0], HostPath: "/dev/null", Permissions: "rw"}},
		Annotations: map[string]string{"example.com/device": ids[0]},
		CdiDevices:  []*pluginapi.CDIDevice{{Name: "example.com/class=" + ids[0]}},
	}}}, p.fails
}

func (p *fakePlugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepared = append(p.prepared, r.GetDevicesIds())
	return &pluginapi.PreStartContainerResponse{}, nil
}

// calls returns the devices of the calls of Allocate and PreStartContainer.
func (p *fakePlugin) calls() (allocated, prepared [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allocated), slices.Clone(p.prepared)
}

// node is a manager that runs, in a directory of its own.
type node struct {
	*Manager
	t       *testing.T
	dir     string
	changed chan struct{}
	woken   chan types.UID
	stop    func()

	mu     sync.Mutex // guards active
	active []*v1.Pod
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "device-plugins") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, changed: make(chan struct{}, 1), woken: make(chan types.UID, 100)}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

// start starts a manager with the files in the directory.
func (n *node) start() {
	n.t.Helper()
	n.Manager = New(Config{
		Dir: n.dir, Files: files.OS{}, Nodes: []int{0, 1}, SourcesReady: func() bool { return true },
		Changed: func() {
			select {
			case n.changed <- struct{}{}:
			default:
			}
		},
		Wake: func(uid types.UID) { n.woken <- uid },
		Active: func() []*v1.Pod {
			n.mu.Lock()
			defer n.mu.Unlock()
			return slices.Clone(n.active)
		},
	})
	n.Recover(n.t.Context())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Run(ctx)
	}()
	n.stop = func() {
		cancel()
		<-done
	}
}

// register registers a plugin with devices, and waits until the node has them.
func (n *node) register(name string, options *pluginapi.DevicePluginOptions, list ...*pluginapi.Device) *fakePlugin {
	n.t.Helper()
	_ = n.call(&pluginapi.RegisterRequest{}) // the kubelet removes sockets before it serves
	p := &fakePlugin{options: options, updates: make(chan []*pluginapi.Device, 16), server: grpc.NewServer()}
	listener, err := net.Listen("unix", filepath.Join(n.dir, name))
	if err != nil {
		n.t.Fatal(err)
	}
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }()
	n.t.Cleanup(p.server.Stop)
	if err := n.call(&pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: name, ResourceName: devices}); err != nil {
		n.t.Fatal(err)
	}
	n.set(p, list...)
	return p
}

// latePlugin is a plugin that is asked for its options while something else happens.
type latePlugin struct {
	fakePlugin
	meanwhile func()
}

func (p *latePlugin) GetDevicePluginOptions(ctx context.Context, e *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	p.meanwhile()
	return p.fakePlugin.GetDevicePluginOptions(ctx, e)
}

// A plugin is refused if others take the last places while it registers.
func TestResourcesAreBounded(t *testing.T) {
	n := newNode(t)
	_ = n.call(&pluginapi.RegisterRequest{}) // the kubelet removes sockets before it serves
	take := func(count int) {
		n.Manager.mu.Lock()
		defer n.Manager.mu.Unlock()
		for range count {
			n.resources[fmt.Sprint("example.com/other-", len(n.resources))] = &resource{stopped: time.Now()}
		}
	}
	take(maxPlugins - 1)
	p := &latePlugin{fakePlugin: fakePlugin{options: &pluginapi.DevicePluginOptions{}}, meanwhile: func() { take(1) }}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	listener, err := net.Listen("unix", filepath.Join(n.dir, "late.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	if err := n.call(&pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: "late.sock", ResourceName: devices}); err == nil {
		t.Error("the plugin is registered")
	}
	n.Manager.mu.Lock()
	defer n.Manager.mu.Unlock()
	if len(n.resources) != maxPlugins || n.resources[devices] != nil {
		t.Errorf("there are %d resources, more than %d", len(n.resources), maxPlugins)
	}
}

// call sends a request to the registration service, once it serves.
func (n *node) call(r *pluginapi.RegisterRequest) error {
	n.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.dir, socketName), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}}))
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = pluginapi.NewRegistrationClient(conn).Register(n.t.Context(), r, grpc.WaitForReady(true))
	return err
}

// set makes a plugin report devices, and waits until the node has them.
func (n *node) set(p *fakePlugin, list ...*pluginapi.Device) {
	n.t.Helper()
	p.updates <- list
	healthy := 0
	for _, d := range list {
		if d.GetHealth() == pluginapi.Healthy {
			healthy++
		}
	}
	n.await(len(list), healthy)
}

// await waits until the node has that many devices.
func (n *node) await(capacity, allocatable int) {
	n.t.Helper()
	for {
		all, healthy := n.Capacity()
		if c, a := all[devices], healthy[devices]; c.Value() == int64(capacity) && a.Value() == int64(allocatable) {
			return
		}
		select {
		case <-n.changed:
		case <-n.t.Context().Done():
			n.t.Fatal("the node does not have the devices")
		}
	}
}

// pod returns a pod that is active, whose containers ask for numbers of devices.
// The first of them are init containers.
func (n *node) pod(name string, init int, asks ...int64) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.UID = name, types.UID("uid-"+name)
	for i, ask := range asks {
		c := v1.Container{Name: string(rune('a' + i)), Resources: v1.ResourceRequirements{Limits: v1.ResourceList{devices: *apiresource.NewQuantity(ask, apiresource.DecimalSI)}}}
		if i < init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	n.mu.Lock()
	n.active = append(n.active, pod)
	n.mu.Unlock()
	return pod
}

// admit allocates what a pod needs, of which some containers run already, by the
// topology manager of a policy.
func (n *node) admit(pod *v1.Pod, running ...string) error {
	m := topologymanager.NewFor(topologymanager.BestEffort, []int{0, 1}, n.Manager)
	return m.Admit(n.t.Context(), pod, func(name string) bool { return slices.Contains(running, name) })
}

func healthy(ids ...string) []*pluginapi.Device {
	var out []*pluginapi.Device
	for _, id := range ids {
		out = append(out, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	return out
}

func onNode(id string, numa int64) *pluginapi.Device {
	return &pluginapi.Device{ID: id, Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: numa}}}}
}
