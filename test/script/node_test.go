package script

import (
	"archive/tar"
	"crypto/tls"
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
	"k8s.io/client-go/util/cert"
)

// services are the servers that a session uses besides its cluster: an image
// registry, a gRPC server and a DRA driver, all in this process.
type services struct {
	registry   *registry
	health     *health.Server
	stopClaims func() // ends the DRA driver
}

type servicesKey struct{}

// registry serves the bundle's example image under the published names. Names
// with the prefix private/ require user and password, those with the prefix
// token/ a token for which user and password are exchanged.
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

// ServeHTTP implements the pull requests of the OCI distribution specification.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	user, password, _ := q.BasicAuth()
	known := user == "user" && password == "secret"
	if q.URL.Path == "/token" {
		if !known {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"token":"granted"}`)
		return
	}
	route := strings.Split(strings.TrimPrefix(q.URL.Path, "/v2/"), "/")
	if len(route) < 3 {
		return
	}
	name, kind, reference := strings.Join(route[:len(route)-2], "/"), route[len(route)-2], route[len(route)-1]
	challenge := ""
	switch {
	case strings.HasPrefix(name, "private/") && !known:
		challenge = `Basic realm="test"`
	case strings.HasPrefix(name, "token/") && q.Header.Get("Authorization") != "Bearer granted":
		scheme := "http"
		if q.TLS != nil {
			scheme = "https"
		}
		challenge = fmt.Sprintf("Bearer realm=%q,service=%q", scheme+"://"+q.Host+"/token", q.Host)
	}
	if challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
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

// loopback listens until the session ends, and sets a variable to the address.
func loopback(ts *testscript.TestScript, host, variable string) net.Listener {
	listener, err := net.Listen("tcp", host+":0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	ts.Check(err)
	ts.Setenv(variable, port)
	return listener
}

// startRegistry runs an image registry on loopback: registry PORTVARIABLE
// [CAFILE]. With CAFILE it speaks TLS and writes its authority to that file.
func startRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: registry PORTVARIABLE [CAFILE]")
	}
	root, err := filepath.Abs("../..")
	ts.Check(err)
	r, err := newRegistry(filepath.Join(root, "bin", "bundle", "images", "frontend.tar"))
	ts.Check(err)
	listener := loopback(ts, "127.0.0.1", args[0])
	if len(args) == 2 {
		certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), certificate, 0o600))
		pair, err := tls.X509KeyPair(certificate, key)
		ts.Check(err)
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}})
	}
	serveHTTP(ts, "registry", listener, r)
	ts.Value(servicesKey{}).(*services).registry = r
}

// startWebServer serves a directory on loopback: webserver PORTVARIABLE
// DIRECTORY.
func startWebServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: webserver PORTVARIABLE DIRECTORY")
	}
	serveHTTP(ts, "web server", loopback(ts, "127.0.0.1", args[0]), http.FileServer(http.Dir(ts.MkAbs(args[1]))))
}

// serveHTTP serves until the script ends. what it is is for the log.
func serveHTTP(ts *testscript.TestScript, what string, listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ts.Defer(func() {
		if err := errors.Join(server.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			ts.Logf("%s: %v", what, err)
		}
	})
}

// publish makes the registry serve its image as NAME: publish NAME.
func publish(ts *testscript.TestScript, neg bool, args []string) {
	r := ts.Value(servicesKey{}).(*services).registry
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
	ts.Value(servicesKey{}).(*services).health = state
}

// serving sets the health that the gRPC server reports for a service: [!]
// serving [SERVICE].
func serving(ts *testscript.TestScript, neg bool, args []string) {
	state := ts.Value(servicesKey{}).(*services).health
	if len(args) > 1 || state == nil {
		ts.Fatalf("usage: [!] serving [SERVICE], after healthserver")
	}
	answer := healthpb.HealthCheckResponse_SERVING
	if neg {
		answer = healthpb.HealthCheckResponse_NOT_SERVING
	}
	state.SetServingStatus(strings.Join(args, ""), answer)
}
