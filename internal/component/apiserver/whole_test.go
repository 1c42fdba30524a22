package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// whole is an API server as the program wires it, over HTTPS and a store in
// memory, without controllers.
type whole struct {
	t    *testing.T
	url  string
	keys *pki.Directory
	// store holds the objects of the server; end stops the server.
	store *mem.Store
	end   func()
}

// startWhole runs an API server with these flags until the test ends.
func startWhole(t *testing.T, args ...string) *whole {
	t.Helper()
	flags := commandLine(t, append([]string{"--bind-address=127.0.0.1", "--service-cluster-ip-range=10.96.0.0/16"}, args...)...)
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	kept := mem.New()
	ctx, cancel := context.WithCancel(context.Background())
	api, err := newAPIServer(ctx, flags, keys, kept)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the API server ended: %v", err)
		}
	})
	select {
	case <-api.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("the API server ended before it was ready: %v", err)
	}
	return &whole{t: t, url: "https://" + listener.Addr().String(), keys: keys, store: kept, end: cancel}
}

func newAPIServer(ctx context.Context, flags *apiserver.Options, keys *pki.Directory, s *mem.Store) (*apiserver.Server, error) {
	if err := flags.Validate(); err != nil {
		return nil, err
	}
	return apiserver.New(ctx, flags, s, keys)
}

// commandLine are the flags of an API server that was started with args.
func commandLine(t *testing.T, args ...string) *apiserver.Options {
	t.Helper()
	flags := apiserver.NewOptions()
	set := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	flags.AddFlags(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

// refusal is why an API server does not start with these flags.
func refusal(t *testing.T, flags *apiserver.Options) string {
	t.Helper()
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	flags.Serving.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
	if _, err = newAPIServer(ctx, flags, keys, mem.New()); err == nil {
		t.Fatal("the flags are accepted")
	}
	return err.Error()
}

// config returns the configuration of a client without an identity.
func (s *whole) config() *rest.Config {
	return &rest.Config{Host: s.url, QPS: -1, UserAgent: "test", TLSClientConfig: rest.TLSClientConfig{CAData: s.keys.Cluster().PEM()}}
}

// admin is a client that may do everything.
func (s *whole) admin() *rest.Config {
	s.t.Helper()
	issued, err := s.keys.Issue(pki.Admin())
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.config()
	c.CertData, c.KeyData = issued.PEM()
	return c
}

// withToken is a client with a bearer token.
func (s *whole) withToken(token string) *rest.Config {
	c := s.config()
	c.BearerToken = token
	return c
}

// client returns a client whose connections end before the server does. A server that
// ends waits a second for those of HTTP/2 that are open.
func (s *whole) client(c *rest.Config) *http.Client {
	s.t.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	return client
}

func (s *whole) clientset(c *rest.Config) kubernetes.Interface {
	s.t.Helper()
	k, err := kubernetes.NewForConfigAndClient(c, s.client(c))
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

// do sends a request as JSON and returns the answer's code and body.
func (s *whole) do(c *rest.Config, method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := s.client(c).Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// metrics returns the content of /metrics.
func (s *whole) metrics() string {
	s.t.Helper()
	code, body := s.do(s.admin(), "GET", "/metrics", "")
	if code != http.StatusOK {
		s.t.Fatalf("/metrics: %d %s", code, body)
	}
	return body
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// file writes a file of the test's and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines reads a file of JSON objects, one a line. A last line that is still
// being written is left out.
func lines[T any](t *testing.T, path string) []T {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	decoder := json.NewDecoder(bytes.NewReader(raw[:bytes.LastIndexByte(raw, '\n')+1]))
	for {
		var one T
		if err := decoder.Decode(&one); err == io.EOF { //nolint:errorlint // readers return it unwrapped
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, one)
	}
}

// startWebhook starts a webhook that runs until the test ends. config is the kubeconfig by
// which an API server reaches it.
func startWebhook(t *testing.T, h http.Handler) (server *httptest.Server, config string) {
	t.Helper()
	server = httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	of := clientcmdapi.NewConfig()
	of.Clusters["webhook"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: authority}
	of.AuthInfos["apiserver"] = &clientcmdapi.AuthInfo{}
	of.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook", AuthInfo: "apiserver"}
	of.CurrentContext = "webhook"
	path := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*of, path); err != nil {
		t.Fatal(err)
	}
	return server, path
}
