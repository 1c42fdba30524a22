package devicemanager

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/unixsocket"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The bounds of calls to plugins, and of what plugins report.
const (
	connectTimeout  = 10 * time.Second
	allocateTimeout = time.Minute
	startTimeout    = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	maxMessage      = 16 << 20
	maxPlugins      = 256
	maxStandby      = 4 // for each resource
	maxDevices      = 65536
	maxDeviceID     = 4096 // bytes
	maxDeviceNodes  = 1024
)

// socketName is the socket at which plugins register.
const socketName = "kubelet.sock"

// plugin is the connection to one device plugin.
type plugin struct {
	resource string
	endpoint string
	client   pluginapi.DevicePluginClient
	options  *pluginapi.DevicePluginOptions
	devices  map[string]*pluginapi.Device // that it has reported last, guarded by the manager's mu; nil: none yet
	end      context.CancelFunc
}

// server is the registration service. Its work ends with ctx.
type server struct {
	pluginapi.UnimplementedRegistrationServer
	manager *Manager
	ctx     context.Context //nolint:containedctx // the life of the plugins that register
	plugins *supervise.WaitGroup
}

// Run serves the registration socket until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	var plugins supervise.WaitGroup
	defer plugins.Wait()
	plugins.Go(ctx, func() { supervise.Every(ctx, stopGracePeriod/10, func() { m.expire(ctx) }) })
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, time.Minute) {
		if err := m.serve(ctx, &plugins); err != nil && ctx.Err() == nil {
			supervise.LogFailure(ctx, "device plugins", err, "Serving the registration of device plugins failed, will try again")
		}
		supervise.Pause(ctx, wait)
	}
}

// Registers returns an error while plugins cannot register.
func (m *Manager) Registers() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unserved == nil {
		return nil
	}
	return fmt.Errorf("device plugin registration gRPC server failed and no device plugins can register: %w", m.unserved)
}

func (m *Manager) setUnserved(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unserved = err
}

// serve makes the socket and answers at it. Plugins register again when they see
// a new socket.
func (m *Manager) serve(ctx context.Context, plugins *supervise.WaitGroup) (err error) {
	defer func() {
		if ctx.Err() == nil {
			m.setUnserved(err)
		}
	}()
	if err := m.clean(); err != nil {
		return err
	}
	path := filepath.Join(m.config.Dir, socketName)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for device plugins: %w", err)
	}
	s := grpc.NewServer(grpc.MaxConcurrentStreams(64), grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		err = supervise.Call(func() (err error) {
			response, err = handler(ctx, request)
			return err
		})
		return response, err
	}))
	pluginapi.RegisterRegistrationServer(s, &server{manager: m, ctx: ctx, plugins: plugins})
	m.setUnserved(nil)
	defer context.AfterFunc(ctx, s.Stop)()
	defer s.Stop()
	return s.Serve(listener)
}

// clean removes the sockets of earlier processes.
func (m *Manager) clean() error {
	if err := m.config.Files.MkdirAll(m.config.Dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of device plugins: %w", err)
	}
	names, err := m.config.Files.ReadDir(m.config.Dir)
	if err != nil {
		return fmt.Errorf("read the directory of device plugins: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(m.config.Dir, name)
		if mode, err := m.config.Files.Lstat(path); err != nil || mode&fs.ModeSocket == 0 {
			continue
		}
		if err := m.config.Files.Remove(path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove the socket of an earlier device plugin: %w", err)
		}
	}
	return nil
}

// Register implements the registration service.
func (s *server) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if r.GetVersion() != pluginapi.Version {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", r.GetVersion(), pluginapi.SupportedVersions)
	}
	if !resourcelist.IsExtended(v1.ResourceName(r.GetResourceName())) {
		return nil, fmt.Errorf("the ResourceName %q is invalid", r.GetResourceName())
	}
	if r.GetEndpoint() == "" || filepath.Base(r.GetEndpoint()) != r.GetEndpoint() || r.GetEndpoint() == socketName {
		return nil, fmt.Errorf("the endpoint %q is not the name of a socket in the directory of device plugins", r.GetEndpoint())
	}
	if err := s.manager.connect(ctx, s, r.GetResourceName(), r.GetEndpoint()); err != nil {
		klog.FromContext(s.ctx).Error(err, "A device plugin cannot register", "resource", r.GetResourceName())
		return nil, err
	}
	s.manager.metrics.registrations.WithLabelValues(r.GetResourceName()).Inc()
	return &pluginapi.Empty{}, nil
}

// connect asks a plugin for its options, and makes it the one of its resource.
func (m *Manager) connect(ctx context.Context, s *server, name, endpoint string) error {
	path := filepath.Join(m.config.Dir, endpoint)
	conn, err := unixsocket.Client(path, maxMessage)
	if err != nil {
		return fmt.Errorf("connect to the device plugin at %s: %w", path, err)
	}
	p := &plugin{resource: name, endpoint: endpoint, client: pluginapi.NewDevicePluginClient(conn)}
	call, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if p.options, err = p.client.GetDevicePluginOptions(call, &pluginapi.Empty{}, grpc.WaitForReady(true)); err != nil {
		_ = conn.Close()
		return fmt.Errorf("failed to get device plugin options: %w", err)
	}
	life, end := context.WithCancel(s.ctx)
	p.end = end
	if err := s.put(name, p); err != nil {
		end()
		_ = conn.Close()
		return err
	}
	klog.FromContext(s.ctx).Info("A device plugin has registered", "resource", name, "endpoint", endpoint)
	s.plugins.Go(s.ctx, func() {
		defer end()
		defer func() { _ = conn.Close() }()
		defer m.stop(s.ctx, p)
		err := supervise.Call(func() error { return m.watch(life, p) })
		klog.FromContext(s.ctx).Info("A device plugin has ended", "resource", name, "err", err)
	})
	return nil
}

// put makes a plugin the one of a resource, and ends those that it replaces. It returns an
// error if the resource is new and there are too many.
func (s *server) put(name string, p *plugin) error {
	m := s.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	if r == nil && len(m.resources) >= maxPlugins {
		return fmt.Errorf("there are %d resources of device plugins already", maxPlugins)
	}
	if r == nil {
		r = &resource{}
		m.resources[name] = r
	}
	for _, before := range r.put(p) {
		before.end()
	}
	m.removed.Delete(name)
	return nil
}

// watch follows the devices of a plugin until it ends.
func (m *Manager) watch(ctx context.Context, p *plugin) error {
	stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return fmt.Errorf("listAndWatch: %w", err)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		devices := response.GetDevices()
		if err := checkDevices(devices); err != nil {
			return err
		}
		m.update(ctx, p, devices)
	}
}

// checkDevices returns an error for devices that are more, or larger, than a
// plugin may report.
func checkDevices(devices []*pluginapi.Device) error {
	if len(devices) > maxDevices {
		return fmt.Errorf("the plugin has %d devices, more than %d", len(devices), maxDevices)
	}
	for _, d := range devices {
		if n := len(d.GetID()); n > maxDeviceID {
			return fmt.Errorf("the id of a device has %d bytes, more than %d: %.64q", n, maxDeviceID, d.GetID())
		}
		if n := len(d.GetTopology().GetNodes()); n > maxDeviceNodes {
			return fmt.Errorf("the device %.64q is on %d NUMA nodes, more than %d", d.GetID(), n, maxDeviceNodes)
		}
	}
	return nil
}

// expire removes the resources whose plugins are gone for too long.
func (m *Manager) expire(ctx context.Context) {
	m.mu.Lock()
	changed := false
	for name, r := range m.resources {
		if r.plugin == nil && time.Since(r.stopped) >= stopGracePeriod {
			delete(m.resources, name)
			m.removed.Insert(name)
			changed = true
		}
	}
	m.mu.Unlock()
	if !changed {
		return
	}
	if err := m.save(); err != nil {
		klog.FromContext(ctx).Error(err, "A resource without a device plugin is not forgotten by the next kubelet")
	}
	m.config.Changed()
}
