// Package attack attacks clusters of the real binary, to gain access or to stop
// them from serving. The name of each test says what it tries. Each test checks
// that the attack fails and that other clients are served during it.
package attack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/test/mark"
)

// waitTimeout bounds each wait of a test. It says nothing of speed: a machine
// that does other work may stop for seconds.
const waitTimeout = 3 * time.Minute

// The clusters that tests share, started by the first test that needs them.
var (
	control  = shared{suffix: "control", arguments: []string{"--nodes=0"}}
	withNode = shared{suffix: "node"}
)

type shared struct {
	suffix    string
	arguments []string

	once    sync.Once
	cluster *cluster
	err     error
}

func TestMain(m *testing.M) { os.Exit(mark.Main(attacks{m})) }

// attacks are the tests, followed by the end of the clusters that they share.
type attacks struct{ *testing.M }

func (a attacks) Run() int {
	code := a.M.Run()
	for _, s := range []*shared{&control, &withNode} {
		if s.cluster == nil {
			continue
		}
		if err := errors.Join(checkReleased(s.cluster), s.cluster.down()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// controlPlane returns a shared control plane without a node.
func controlPlane(t *testing.T) *cluster { return control.get(t) }

// node returns a shared cluster with a node and real containers.
func node(t *testing.T) *cluster {
	if os.Geteuid() != 0 {
		t.Fatal("a node needs root: run these tests by make test")
	}
	return withNode.get(t)
}

func (s *shared) get(t *testing.T) *cluster {
	t.Helper()
	s.once.Do(func() {
		if s.cluster, s.err = start(s.suffix, s.arguments...); s.err == nil {
			s.cluster.attacked.heap, s.err = liveHeap(s.cluster)
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	s.cluster.checkNotRestarted(t)
	return s.cluster
}

// startOwn starts a cluster for one test, for attacks that may damage it. The
// test removes it.
func startOwn(t *testing.T, arguments ...string) *cluster {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(t.Name(), "Test")))
	c, err := start(name[:min(len(name), 24)], arguments...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.down(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// cluster is a running cluster of the real binary.
type cluster struct {
	clusterProcesses
	dir, kubeconfig string
	binary          string
	admin           *rest.Config
	client          kubernetes.Interface
	keys            *pki.Directory
	started         string // start time of the API server's process

	attacked memoryRecord
}

// start starts a cluster in a directory of its own and waits until it is ready.
func start(suffix string, arguments ...string) (*cluster, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	binary := os.Getenv("CORACLE_BINARY")
	if binary == "" {
		binary = filepath.Join(root, "bin", "coracle")
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%s is missing: run these tests by make test", binary)
	}
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return nil, err
	}
	c := &cluster{
		clusterProcesses: clusterProcesses{name: mark.Name(suffix), dataDir: filepath.Join(dir, "data")},
		dir:              dir,
		binary:           binary,
		kubeconfig:       filepath.Join(dir, "kubeconfig"),
	}
	up := append([]string{"up", "--name=" + c.name, "--data-dir=" + c.dataDir, "--kubeconfig=" + c.kubeconfig}, arguments...)
	if out, err := c.coracle(up...); err != nil {
		return nil, errors.Join(fmt.Errorf("coracle up: %w\n%s", err, out), c.down())
	}
	if err := c.connect(); err != nil {
		return nil, errors.Join(err, c.down())
	}
	return c, nil
}

// connect reads the admin's credentials, and the keys with which tests issue
// others.
func (c *cluster) connect() (err error) {
	if c.admin, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return err
	}
	c.admin.QPS = -1
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	if c.keys, err = pki.Open(filepath.Join(c.dataDir, "pki"), clock.RealClock{}); err != nil {
		return err
	}
	c.started, err = c.startTime()
	return err
}

// coracle runs the binary for this cluster and returns its output.
func (c *cluster) coracle(arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.binary, arguments...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// down removes the cluster with its directory.
func (c *cluster) down() error {
	if out, err := c.coracle("down", "--yes", "--name="+c.name); err != nil {
		return fmt.Errorf("coracle down --name=%s: %w\n%s", c.name, err, out)
	}
	return os.RemoveAll(c.dir)
}

// startTime returns a value that identifies the current run of the API server's
// process.
func (c *cluster) startTime() (string, error) {
	raw, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(context.Background()).Raw()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if after, ok := strings.CutPrefix(line, "process_start_time_seconds "); ok {
			return strings.TrimSpace(after), nil
		}
	}
	return "", errors.New("/metrics does not say when the process was started")
}

// checkNotRestarted fails the test if the API server's process was restarted
// since the start of the test, or does not answer.
func (c *cluster) checkNotRestarted(t *testing.T) {
	t.Helper()
	now, err := c.startTime()
	if err != nil {
		t.Fatalf("the API server no longer answers: %v\n%s", err, c.log())
	}
	if now != c.started {
		t.Fatalf("the API server's process was restarted\n%s", c.log())
	}
}

// log returns the end of the cluster's log.
func (c *cluster) log() string {
	raw, err := os.ReadFile(filepath.Join(c.dataDir, "coracle.log"))
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-8<<10):])
}

// as returns a configuration without credentials except those that set adds.
func (c *cluster) as(set func(*rest.Config)) *rest.Config {
	config := rest.AnonymousClientConfig(c.admin)
	config.QPS = -1
	set(config)
	return config
}

// user returns a user with a client certificate of the cluster's authority.
func (c *cluster) user(t *testing.T, name string, groups ...string) *rest.Config {
	t.Helper()
	file := "attack-" + strings.NewReplacer(":", "-", "/", "-").Replace(name)
	certificate, err := c.keys.Issue(pki.User(file, name, groups...))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := pki.Kubeconfig{
		Cluster: c.name, Server: c.admin.Host, User: name, Authority: c.keys.Cluster(), Identity: certificate, Embed: true,
	}.Config()
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// kubelet returns the identity of a node's kubelet.
func (c *cluster) kubelet(t *testing.T, nodeName string) *rest.Config {
	return c.user(t, "system:node:"+nodeName, "system:nodes")
}

// tenant returns a service account with a ClusterRole's permissions in its own
// namespace, once these are in effect and pods can be created there. An empty
// clusterRole gives it none. The test removes the namespace.
func (c *cluster) tenant(t *testing.T, clusterRole string) (*rest.Config, string) {
	t.Helper()
	ctx := context.Background()
	namespace, err := c.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the namespace is deleted", func() error { // the server may still call a webhook of the test for a moment
			if err := c.client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				return err
			}
			return nil
		})
	})
	account, err := c.client.CoreV1().ServiceAccounts(namespace.Name).Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if clusterRole != "" {
		if _, err := c.client.RbacV1().RoleBindings(namespace.Name).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: namespace.Name}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the tenant's permissions, and the namespace's service account", func() error {
		_, err := c.client.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		if err != nil || clusterRole == "" {
			return err
		}
		return allowed(c, "system:serviceaccount:"+namespace.Name+":"+account.Name, authorizationv1.ResourceAttributes{Namespace: namespace.Name, Verb: "get", Resource: "configmaps"})
	})
	token, err := c.client.CoreV1().ServiceAccounts(namespace.Name).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c.as(func(config *rest.Config) { config.BearerToken = token.Status.Token }), namespace.Name
}

// allowed returns an error unless a user has a permission. A binding gives it a moment
// after it was created.
func allowed(c *cluster, user string, permission authorizationv1.ResourceAttributes) error {
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &permission},
	}, metav1.CreateOptions{})
	if err == nil && !review.Status.Allowed {
		err = fmt.Errorf("%s has no permission for %+v: %+v", user, permission, review.Status)
	}
	return err
}

// trust returns the configuration with which a client verifies the API server.
func (c *cluster) trust(t *testing.T) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.admin.CAData) {
		t.Fatal("the kubeconfig has no certificate authority")
	}
	return &tls.Config{RootCAs: pool}
}

// address returns the API server's host:port.
func (c *cluster) address() string { return strings.TrimPrefix(c.admin.Host, "https://") }

// send sends a request as config's user and returns the status code and the
// body. headers are pairs of names and values.
func send(t *testing.T, config *rest.Config, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, string(raw)
}

// eventually waits until condition returns nil. If it does not, the test fails
// with the last error.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %v: %v", what, waitTimeout, err)
		case <-again.C:
		}
	}
}
