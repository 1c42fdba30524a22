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

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/test/mark"
)

// The processes that are killed run this test binary. An environment variable
// selects what a process runs.
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
		os.Exit(mark.Main(m))
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

// runServer runs an API server on the listener that it inherits as file descriptor
// 3.
func runServer(dir string) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	s, err := etcd.Dial(endpoint(dir), klog.Background())
	if err != nil {
		return err
	}
	server, err := apiservertest.New(s)
	if err != nil {
		return err
	}
	go func() { _ = server.Cache.Run(context.Background()) }()
	<-server.Cache.Synced()
	fmt.Println("ready")
	return http.Serve(listener, server.Handler())
}

// process is a process that can be killed and restarted.
type process struct {
	t        *testing.T
	role     string
	dir      string
	listener *os.File // nil for etcd

	mu  sync.Mutex // guards cmd
	cmd *exec.Cmd
}

// start starts the process and waits until it reports that it is ready.
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

// kill sends SIGKILL and waits for the end of the process.
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

// cluster is an etcd with its API servers.
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
