package history

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Processes that can be killed are this test binary, told by the environment
// what to be.
const (
	roleVariable = "CORACLE_HISTORY_ROLE"
	dirVariable  = "CORACLE_HISTORY_DIR"
	etcdRole     = "etcd"
	serverRole   = "apiserver"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case etcdRole:
		err = runEtcd(os.Getenv(dirVariable))
	case serverRole:
		err = runServer(os.Getenv(dirVariable))
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func runEtcd(dir string) error {
	e, err := etcd.Embed(context.Background(), etcd.Config{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return e.Run(context.Background())
}

func endpoint(dir string) etcd.Endpoints {
	return etcd.Endpoints{URLs: []string{"unix://" + dir + "/etcd.sock"}}
}

// runServer serves on the listener that it inherited as file 3.
func runServer(dir string) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	s, err := etcd.Dial(endpoint(dir), klog.Background())
	if err != nil {
		return err
	}
	resources := all.All()
	cache := watchcache.New(s, resources)
	server, err := apiserver.New(apiserver.Config{
		Resources: resources,
		Cache:     cache,
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "admin"}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
	})
	if err != nil {
		return err
	}
	go func() { _ = cache.Run(context.Background()) }()
	<-cache.Synced()
	fmt.Println("ready")
	return http.Serve(listener, server.Handler())
}

// process is one that is killed and started again.
type process struct {
	t        *testing.T
	role     string
	dir      string
	listener *os.File // nil for etcd

	mu  sync.Mutex // guards cmd
	cmd *exec.Cmd
}

// start returns once the process says that it is ready.
func (p *process) start() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+p.role, dirVariable+"="+p.dir)
	cmd.Stderr = os.Stderr
	if p.listener != nil {
		cmd.ExtraFiles = []*os.File{p.listener}
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Errorf("start %s: %v", p.role, err)
		return
	}
	p.mu.Lock()
	p.cmd = cmd
	p.mu.Unlock()
	if !bufio.NewScanner(out).Scan() {
		p.t.Errorf("%s ended before it was ready", p.role)
	}
}

// kill is kill -9.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	_ = p.cmd.Wait()
	p.cmd = nil
}

// cluster is one etcd and some API servers.
type cluster struct {
	etcd    *process
	servers []*process
	urls    []string
}

func startCluster(t *testing.T, servers int) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "history")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{etcd: &process{t: t, role: etcdRole, dir: dir}}
	t.Cleanup(func() {
		for _, p := range append(c.servers, c.etcd) {
			p.kill()
		}
		_ = os.RemoveAll(dir)
	})
	c.etcd.start()
	for range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		p := &process{t: t, role: serverRole, dir: dir, listener: file}
		p.start()
		c.servers = append(c.servers, p)
		c.urls = append(c.urls, "http://"+l.Addr().String())
	}
	return c
}
