package script

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// outside is what sessions have around their cluster: an image registry and a
// gRPC server, both in this process.
type outside struct {
	registry *registry
	health   *health.Server
}

type outsideKey struct{}

// registry serves the bundle's example image under the names that were
// published. Names that begin with private/ ask for user and secret.
type registry struct {
	blobs map[string][]byte // by digest
	index struct {
		Manifests []struct{ MediaType, Digest string }
	}
	mu    sync.Mutex // guards names
	names map[string]bool
}

func newRegistry(archive string) (*registry, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r := &registry{blobs: map[string][]byte{}, names: map[string]bool{}}
	for files := tar.NewReader(f); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		switch dir, name := path.Split(path.Clean(header.Name)); {
		case name == "index.json":
			err = json.Unmarshal(content, &r.index)
		case strings.HasPrefix(dir, "blobs/sha256/"):
			r.blobs["sha256:"+name] = content
		}
		if err != nil {
			return nil, err
		}
	}
	if len(r.index.Manifests) == 0 {
		return nil, fmt.Errorf("%s has no manifest", archive)
	}
	return r, nil
}

func (r *registry) published(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[name]
}

// ServeHTTP implements the pulling half of the OCI distribution specification.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	route := strings.Split(strings.TrimPrefix(q.URL.Path, "/v2/"), "/")
	if len(route) < 3 {
		return
	}
	name, kind, reference := strings.Join(route[:len(route)-2], "/"), route[len(route)-2], route[len(route)-1]
	if user, password, _ := q.BasicAuth(); strings.HasPrefix(name, "private/") && (user != "user" || password != "secret") {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	digest, mediaType := reference, "application/octet-stream"
	if kind == "manifests" {
		mediaType = r.index.Manifests[0].MediaType
		if !strings.HasPrefix(digest, "sha256:") {
			digest = r.index.Manifests[0].Digest
		}
	}
	content, ok := r.blobs[digest]
	if !ok || !r.published(name) {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	if q.Method != http.MethodHead {
		_, _ = w.Write(content)
	}
}

// loopback listens until the session ends, and puts the address in a variable.
func loopback(ts *testscript.TestScript, host, variable string) net.Listener {
	listener, err := net.Listen("tcp", host+":0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	ts.Check(err)
	ts.Setenv(variable, port)
	return listener
}

// startRegistry runs an image registry on loopback: registry PORTVARIABLE.
func startRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: registry PORTVARIABLE")
	}
	root, err := filepath.Abs("../..")
	ts.Check(err)
	r, err := newRegistry(filepath.Join(root, "bin", "bundle", "images", "frontend.tar"))
	ts.Check(err)
	server := &http.Server{Handler: r}
	listener := loopback(ts, "127.0.0.1", args[0])
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ts.Defer(func() {
		if err := errors.Join(server.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			ts.Logf("web server: %v", err)
		}
	})
	ts.Value(outsideKey{}).(*outside).registry = r
}

// startWebServer serves a folder on loopback: webserver PORTVARIABLE FOLDER.
func startWebServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: webserver PORTVARIABLE FOLDER")
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(ts.MkAbs(args[1])))}
	listener := loopback(ts, "127.0.0.1", args[0])
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ts.Defer(func() {
		if err := errors.Join(server.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			ts.Logf("web server: %v", err)
		}
	})
}

// publish makes the registry serve its image as NAME: publish NAME.
func publish(ts *testscript.TestScript, neg bool, args []string) {
	r := ts.Value(outsideKey{}).(*outside).registry
	if len(args) != 1 || r == nil {
		ts.Fatalf("usage: [!] publish NAME, after registry")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[args[0]] = !neg
}

// healthServer runs a gRPC server with the health service on the machine's
// addresses: healthserver PORTVARIABLE.
func healthServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: healthserver PORTVARIABLE")
	}
	state := health.NewServer()
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, state)
	listener := loopback(ts, "", args[0])
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ts.Defer(func() {
		server.Stop()
		if err := <-done; err != nil {
			ts.Logf("gRPC server: %v", err)
		}
	})
	ts.Value(outsideKey{}).(*outside).health = state
}

// serving sets what the gRPC server says of a service: [!] serving [SERVICE].
func serving(ts *testscript.TestScript, neg bool, args []string) {
	state := ts.Value(outsideKey{}).(*outside).health
	if len(args) > 1 || state == nil {
		ts.Fatalf("usage: [!] serving [SERVICE], after healthserver")
	}
	answer := healthpb.HealthCheckResponse_SERVING
	if neg {
		answer = healthpb.HealthCheckResponse_NOT_SERVING
	}
	state.SetServingStatus(strings.Join(args, ""), answer)
}
