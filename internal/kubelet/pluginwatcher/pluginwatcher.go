// Package pluginwatcher registers plugins: programs on the node that serve
// pluginregistration.v1 on a socket in ROOT/plugins_registry. It stands for
// upstream's plugin manager.
//
//	a socket is there ─► GetInfo ─► Validate ─► Register ─► NotifyRegistrationStatus(true)
//	        ▲               └───────────┴───────────┴─► NotifyRegistrationStatus(false)
//	        └─────────────────── back-off ─────────────────────────┘
//	the socket is gone or was replaced ─► Deregister
//
// Each socket has a goroutine of its own, so that one that hangs delays no other.
package pluginwatcher

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/unixsocket"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Plugin holds what a plugin reports about itself when it registers.
type Plugin struct {
	Type     string
	Name     string
	Endpoint string   // the real path of the socket that serves the plugin's own API
	Versions []string // of that API
	// Usual says that the plugin has named Endpoint by the usual path of a directory
	// that is elsewhere, and so knows what is in it by usual paths.
	Usual bool
}

// Handler handles the plugins of one type. Its methods may be called from
// several goroutines, for the plugin of one socket by one at a time. They get
// what a plugin says about itself, and must check it.
type Handler interface {
	// Validate returns why a plugin is not accepted. It must not block.
	Validate(p Plugin) error
	// Register makes a plugin known. A plugin that was registered from another
	// socket may have the same name.
	Register(ctx context.Context, p Plugin) error
	// Deregister follows a Register of the same plugin that has returned, with
	// or without an error. It must leave a plugin of this name alone that was
	// registered with another endpoint since.
	Deregister(ctx context.Context, p Plugin)
}

// Bounds of the directory of plugins, and of what is done with it.
const (
	maxPlugins = 256
	period     = time.Second // of the directory's listings
)

// Directory returns the directory of the plugins' sockets for a kubelet.
func Directory(root string) string { return filepath.Join(root, "plugins_registry") }

// Watcher registers the plugins whose sockets are in a directory.
type Watcher struct {
	dir      string
	files    files.FS
	paths    hostpath.Directories
	handlers map[string]Handler

	// What follows is by path of the socket, and used by Run only.
	plugins map[string]*plugin
	ending  map[string]*plugin // whose sockets are gone, as far as their goroutines may not have ended
}

// plugin is one socket, with the goroutine that serves it.
type plugin struct {
	socket files.Socket
	gone   chan struct{} // closed when the socket is gone
	done   chan struct{} // closed when the goroutine has ended
}

// New returns a watcher of the sockets in a directory. paths are how plugins name
// sockets. handlers has the handler of each type of plugin, such as
// registerapi.CSIPlugin.
func New(dir string, fsys files.FS, paths hostpath.Directories, handlers map[string]Handler) *Watcher {
	return &Watcher{dir: dir, files: fsys, paths: paths, handlers: handlers, plugins: make(map[string]*plugin), ending: make(map[string]*plugin)}
}

// Run registers and deregisters plugins until ctx ends. Plugins that are
// registered then stay so.
func (w *Watcher) Run(ctx context.Context) {
	if err := w.files.MkdirAll(w.dir, 0o750); err != nil {
		klog.FromContext(ctx).Error(err, "Making the directory of plugins failed", "directory", w.dir)
	}
	var sockets supervise.WaitGroup
	defer sockets.Wait()
	look := func() {
		supervise.Contain(ctx, "plugins", func() { w.look(ctx, &sockets) })
	}
	look()
	supervise.Every(ctx, period, look)
}

// look compares the sockets that are there with those that have goroutines.
func (w *Watcher) look(ctx context.Context, group *supervise.WaitGroup) {
	sockets, err := w.files.Sockets(w.dir, maxPlugins)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing the sockets of plugins failed, will try again", "directory", w.dir)
		return
	}
	there := make(map[string]files.Socket, len(sockets))
	for _, s := range sockets {
		there[s.Path] = s
	}
	maps.DeleteFunc(w.ending, func(_ string, p *plugin) bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	for path, p := range w.plugins {
		if there[path] != p.socket {
			close(p.gone)
			delete(w.plugins, path)
			w.ending[path] = p
		}
	}
	for path, s := range there {
		if w.plugins[path] != nil {
			continue
		}
		p := &plugin{socket: s, gone: make(chan struct{}), done: make(chan struct{})}
		w.plugins[path] = p
		earlier := w.ending[path] // has to end first
		group.Go(ctx, func() {
			defer close(p.done)
			if earlier != nil {
				<-earlier.done
			}
			supervise.Contain(ctx, "plugins", func() { w.serve(ctx, p) })
		})
	}
}

// Back-off between two attempts to register a plugin.
const (
	firstRetry = 500 * time.Millisecond
	maxRetry   = 2 * time.Minute
)

// serve registers a plugin, and deregisters it when its socket is gone.
func (w *Watcher) serve(ctx context.Context, p *plugin) {
	attempts, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	defer func() {
		cancel()
		<-stopped
	}()
	supervise.Go(ctx, func() {
		defer close(stopped)
		select {
		case <-p.gone:
			cancel()
		case <-attempts.Done():
		}
	})
	log := klog.FromContext(ctx).WithValues("socket", p.socket.Path)
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		known, err := w.register(ctx, attempts, p.socket.Path)
		if err == nil {
			log.Info("Registered plugin", "type", known.Type, "name", known.Name, "endpoint", known.Endpoint)
			select {
			case <-p.gone:
				w.handlers[known.Type].Deregister(ctx, known)
				log.Info("Deregistered plugin", "type", known.Type, "name", known.Name)
			case <-ctx.Done():
			}
			return
		}
		if attempts.Err() != nil {
			return
		}
		log.Error(err, "Registering a plugin failed, will try again", "in", wait)
		if !supervise.Pause(attempts, wait) {
			return
		}
	}
}

// register asks the plugin of a socket what it is and makes it known to the
// handler of its type. ctx ends with the watcher, attempt also with the socket.
// A plugin that is not registered is not known afterwards, unless the watcher
// ends.
func (w *Watcher) register(ctx, attempt context.Context, socket string) (Plugin, error) {
	conn, err := unixsocket.Client(socket, maxMessage)
	if err != nil {
		return Plugin{}, err
	}
	defer func() { _ = conn.Close() }()
	client := registerapi.NewRegistrationClient(conn)
	p, err := info(attempt, client, socket)
	if err != nil {
		return Plugin{}, fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s: %w", socket, err)
	}
	named := p.Endpoint
	p.Endpoint = w.paths.Real(named)
	p.Usual = p.Endpoint != named
	refuse := func(err error) (Plugin, error) {
		if told := notify(attempt, client, err); told != nil {
			klog.FromContext(ctx).Error(told, "Telling a plugin that it is not registered failed", "socket", socket)
		}
		return Plugin{}, err
	}
	handler := w.handlers[p.Type]
	if handler == nil {
		return refuse(fmt.Errorf("no handler registered for plugin type: %s at socket %s", p.Type, socket))
	}
	if err := handler.Validate(p); err != nil {
		return refuse(fmt.Errorf("plugin validation failed with err: %w", err))
	}
	forget := func() {
		if ctx.Err() == nil {
			handler.Deregister(ctx, p)
		}
	}
	if err := handler.Register(attempt, p); err != nil {
		forget()
		return refuse(fmt.Errorf("plugin registration failed with err: %w", err))
	}
	if err := notify(attempt, client, nil); err != nil {
		forget()
		return Plugin{}, fmt.Errorf("failed to send registration status at socket %s: %w", socket, err)
	}
	return p, nil
}
