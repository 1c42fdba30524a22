package pluginwatcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/supervise"
)

// server is a plugin.
type server struct {
	registerapi.UnimplementedRegistrationServer
	info   *registerapi.PluginInfo
	told   chan string // what NotifyRegistrationStatus said, "" for success
	served *grpc.Server
}

func (s *server) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return s.info, nil
}

func (s *server) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	text := status.GetError()
	if !status.GetPluginRegistered() && text == "" {
		text = "not registered"
	}
	select {
	case s.told <- text:
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// serve starts a plugin on a socket.
func serve(t *testing.T, socket string, info *registerapi.PluginInfo) *server {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{info: info, told: make(chan string, 100), served: grpc.NewServer()}
	registerapi.RegisterRegistrationServer(s.served, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.served.Serve(listener) }()
	t.Cleanup(func() { s.served.Stop(); <-done })
	return s
}

// known is a handler that remembers the plugins.
type known struct {
	refuse  error // of Register
	changed chan struct{}

	mu      sync.Mutex // guards what follows
	plugins []string
	events  []string
}

func newKnown() *known { return &known{changed: make(chan struct{}, 1)} }

func (k *known) Validate(p Plugin) error {
	if !slices.Contains(p.Versions, "v1") {
		return errors.New("want v1")
	}
	return nil
}

func (k *known) Register(_ context.Context, p Plugin) error {
	k.change("+"+p.Name, func() { k.plugins = append(k.plugins, p.Name+" "+filepath.Base(p.Endpoint)) })
	return k.refuse
}

func (k *known) Deregister(_ context.Context, p Plugin) {
	k.change("-"+p.Name, func() {
		k.plugins = slices.DeleteFunc(k.plugins, func(s string) bool { return s == p.Name+" "+filepath.Base(p.Endpoint) })
	})
}

func (k *known) change(event string, how func()) {
	k.mu.Lock()
	how()
	k.events = append(k.events, event)
	k.mu.Unlock()
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// wait waits until the plugins are those that are wanted.
func (k *known) wait(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		k.mu.Lock()
		got := slices.Clone(k.plugins)
		k.mu.Unlock()
		if slices.Sort(got); slices.Equal(got, want) {
			return
		}
		select {
		case <-k.changed:
		case <-deadline:
			t.Fatalf("plugins: %q, want %q", got, want)
		}
	}
}

// start runs a watcher of a new directory.
func start(t *testing.T, handlers map[string]Handler) (dir string, stop func()) {
	t.Helper()
	// The path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "plugins")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); New(dir, files.OS{}, hostpath.Directories{}, handlers).Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(func() { stop(); _ = os.RemoveAll(dir) })
	return dir, stop
}

func csi(name string, versions ...string) *registerapi.PluginInfo {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: name, SupportedVersions: versions}
}

func TestPluginIsRegisteredWhileItsSocketIsThere(t *testing.T) {
	k := newKnown()
	dir, stop := start(t, map[string]Handler{registerapi.CSIPlugin: k})
	socket := filepath.Join(dir, "below", "a.sock")
	first := serve(t, socket, csi("a", "v1"))
	if told := <-first.told; told != "" {
		t.Errorf("the plugin was told %q", told)
	}
	k.wait(t, "a a.sock")
	other := csi("b", "v1")
	other.Endpoint = "/run/b/csi.sock"
	serve(t, filepath.Join(dir, "b.sock"), other)
	k.wait(t, "a a.sock", "b csi.sock")
	first.served.Stop() // removes the socket
	k.wait(t, "b csi.sock")
	second := serve(t, socket, csi("a", "v1"))
	<-second.told
	k.wait(t, "a a.sock", "b csi.sock")
	stop()
	k.wait(t, "a a.sock", "b csi.sock") // drivers outlive the kubelet
}

// endpoints is a handler that hands on what plugins are registered as.
type endpoints chan Plugin

func (e endpoints) Validate(Plugin) error                      { return nil }
func (e endpoints) Register(_ context.Context, p Plugin) error { e <- p; return nil }
func (e endpoints) Deregister(_ context.Context, p Plugin)     { e <- p }

// A plugin that names its socket by a usual path is one whose socket is at the real path.
func TestUsualEndpoint(t *testing.T) {
	dir := t.TempDir()
	for named, want := range map[string]Plugin{
		"/var/lib/kubelet/plugins/a/csi.sock": {Endpoint: "/data/kubelet/plugins/a/csi.sock", Usual: true},
		"/data/kubelet/plugins/a/csi.sock":    {Endpoint: "/data/kubelet/plugins/a/csi.sock"},
		"/run/a/csi.sock":                     {Endpoint: "/run/a/csi.sock"},
	} {
		h := make(endpoints, 2)
		sockets := &listed{FS: files.OS{}}
		w := New(dir, sockets, hostpath.New("/data/kubelet", hostpath.PodLogs, hostpath.LogLinks), map[string]Handler{registerapi.CSIPlugin: h})
		path := shortDirectory(t)
		about := csi("a", "v1")
		about.Endpoint = named
		serve(t, filepath.Join(path, "a.sock"), about)
		sockets.there = []files.Socket{{Path: filepath.Join(path, "a.sock"), ID: "1"}}
		var group supervise.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		w.look(ctx, &group)
		if got := <-h; got.Endpoint != want.Endpoint || got.Usual != want.Usual {
			t.Errorf("%s is registered as %+v", named, got)
		}
		sockets.there = nil
		w.look(ctx, &group)
		if got := <-h; got.Endpoint != want.Endpoint || got.Usual != want.Usual {
			t.Errorf("%s is deregistered as %+v", named, got)
		}
		cancel()
		group.Wait()
	}
}

// slow is a handler whose Deregister waits.
type slow struct {
	*known
	begun, end chan struct{}
}

func (s *slow) Deregister(ctx context.Context, p Plugin) {
	close(s.begun)
	<-s.end
	s.known.Deregister(ctx, p)
}

// A socket that comes back is registered after the plugin that was there before
// is deregistered, however long that takes.
func TestReturnedSocketWaitsForDeregister(t *testing.T) {
	h := &slow{newKnown(), make(chan struct{}), make(chan struct{})}
	dir := t.TempDir()
	sockets := &listed{FS: files.OS{}}
	w := New(dir, sockets, hostpath.Directories{}, map[string]Handler{registerapi.CSIPlugin: h})
	var group supervise.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer group.Wait()
	defer cancel()
	look := func(there ...files.Socket) {
		sockets.there = there
		w.look(ctx, &group)
	}
	path := filepath.Join(shortDirectory(t), "a.sock")
	first := serve(t, path, csi("a", "v1"))
	look(files.Socket{Path: path, ID: "1"})
	<-first.told
	h.wait(t, "a a.sock")
	look()
	<-h.begun
	look()
	look(files.Socket{Path: path, ID: "2"})
	p, earlier := w.plugins[path], w.ending[path]
	if p == nil || earlier == nil {
		t.Fatalf("the socket has the plugin %v after %v", p, earlier)
	}
	close(h.end)
	<-first.told
	h.wait(t, "a a.sock")
	if events := strings.Join(h.events, " "); events != "+a -a +a" {
		t.Errorf("events: %s", events)
	}
	look(files.Socket{Path: path, ID: "2"})
	if len(w.ending) > 0 {
		t.Errorf("%d plugins are still ending", len(w.ending))
	}
}

// shortDirectory returns a directory for sockets, whose paths have at most 107 bytes.
func shortDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// listed is a file system whose sockets the test lists.
type listed struct {
	files.FS
	there []files.Socket
}

func (l *listed) Sockets(string, int) ([]files.Socket, error) { return l.there, nil }

func TestReplacedSocketIsRegisteredAgain(t *testing.T) {
	k := newKnown()
	dir, _ := start(t, map[string]Handler{registerapi.CSIPlugin: k})
	socket := filepath.Join(dir, "a.sock")
	<-serve(t, socket, csi("a", "v1")).told
	staged := filepath.Join(dir, ".new")
	again := serve(t, staged, csi("a2", "v1"))
	if err := os.Rename(staged, socket); err != nil {
		t.Fatal(err)
	}
	<-again.told
	k.wait(t, "a2 a.sock")
	if events := strings.Join(k.events, " "); events != "+a -a +a2" {
		t.Errorf("events: %s", events)
	}
}

func TestHostileSocketsDelayNobody(t *testing.T) {
	k := newKnown()
	dir, _ := start(t, map[string]Handler{registerapi.CSIPlugin: k})
	for i := range 20 { // accept nothing
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprint("hung", i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "dead"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := map[string]*registerapi.PluginInfo{
		"other":   {Type: "Unknown", Name: "x", SupportedVersions: []string{"v1"}},
		"old":     csi("old", "v0"),
		"noname":  csi("", "v1"),
		"control": csi("a\nb", "v1"),
		"long":    csi(strings.Repeat("a", maxName+1), "v1"),
		"large":   csi(strings.Repeat("a", maxMessage), "v1"),
		"local":   {Type: registerapi.CSIPlugin, Name: "x", Endpoint: "relative", SupportedVersions: []string{"v1"}},
	}
	servers := map[string]*server{}
	for name, info := range wrong {
		servers[name] = serve(t, filepath.Join(dir, name), info)
	}
	serve(t, filepath.Join(dir, "good"), csi("good", "v1"))
	k.wait(t, "good good")
	for name, want := range map[string]string{"other": "no handler registered for plugin type: Unknown", "old": "want v1"} {
		if told := <-servers[name].told; !strings.Contains(told, want) {
			t.Errorf("%s was told %q, want %q", name, told, want)
		}
	}
	k.wait(t, "good good")
}

func TestPluginThatCannotBeRegisteredIsToldAndTriedAgain(t *testing.T) {
	k := newKnown()
	k.refuse = errors.New("no node id")
	dir, _ := start(t, map[string]Handler{registerapi.CSIPlugin: k})
	s := serve(t, filepath.Join(dir, "a"), csi("a", "v1"))
	for range 2 {
		if told := <-s.told; told != "plugin registration failed with err: no node id" {
			t.Errorf("the plugin was told %q", told)
		}
	}
	k.wait(t)
}

func TestOnlySoManyPlugins(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	found, err := files.OS{}.Sockets(dir, 3)
	if err != nil || len(found) != 3 {
		t.Errorf("found %v: %v, want 3 sockets", found, err)
	}
	if found, err := (files.OS{}).Sockets(filepath.Join(dir, "missing"), 3); err != nil || len(found) != 0 {
		t.Errorf("found %v: %v in a missing directory", found, err)
	}
}
