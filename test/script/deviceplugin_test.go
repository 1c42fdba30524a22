package script

import (
	"context"
	"net"
	"path/filepath"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugins are the device plugins of a session, by socket.
type plugins struct {
	mu     sync.Mutex // guards bySock
	bySock map[string]*grpc.Server
}

// examplePlugin is a device plugin whose devices are /dev/null under other names.
type examplePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	ids []string
}

// GetDevicePluginOptions implements the plugin.
func (p *examplePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true}, nil
}

// ListAndWatch implements the plugin.
func (p *examplePlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	response := &pluginapi.ListAndWatchResponse{}
	for _, id := range p.ids {
		response.Devices = append(response.Devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	if err := stream.Send(response); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// PreStartContainer implements the plugin.
func (p *examplePlugin) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

// Allocate implements the plugin.
func (p *examplePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, q := range r.GetContainerRequests() {
		c := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"DEVICE": q.GetDevicesIds()[0]}}
		for _, id := range q.GetDevicesIds() {
			c.Devices = append(c.Devices, &pluginapi.DeviceSpec{ContainerPath: "/dev/" + id, HostPath: "/dev/null", Permissions: "rw"})
		}
		c.Mounts = []*pluginapi.Mount{{ContainerPath: "/driver", HostPath: "/etc/hostname", ReadOnly: true}}
		answer.ContainerResponses = append(answer.ContainerResponses, c)
	}
	return answer, nil
}

// devicePlugin registers a device plugin: deviceplugin DIRECTORY SOCKET RESOURCE
// ID... With a negation it ends the plugin at a socket: ! deviceplugin SOCKET.
func devicePlugin(ts *testscript.TestScript, neg bool, args []string) {
	known := ts.Value(pluginsKey{}).(*plugins)
	known.mu.Lock()
	defer known.mu.Unlock()
	if neg {
		known.bySock[args[0]].Stop()
		return
	}
	if len(args) < 3 {
		ts.Fatalf("usage: deviceplugin DIRECTORY SOCKET RESOURCE ID...")
	}
	dir, socket := ts.MkAbs(args[0]), args[1]
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	register := func(r *pluginapi.RegisterRequest) error {
		_, err := pluginapi.NewRegistrationClient(conn).Register(ctx, r, grpc.WaitForReady(true))
		return err
	}
	_ = register(&pluginapi.RegisterRequest{}) // the kubelet removes sockets before it serves
	listener, err := net.Listen("unix", filepath.Join(dir, socket))
	ts.Check(err)
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, &examplePlugin{ids: args[3:]})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	ts.Defer(func() {
		server.Stop()
		<-done
	})
	known.bySock[socket] = server
	ts.Check(register(&pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: socket, ResourceName: args[2]}))
}

type pluginsKey struct{}
