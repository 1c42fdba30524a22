package cluster

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
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ending is a control plane with an etcd and an audit log in batches.
type ending struct {
	t      *testing.T
	config *rest.Config
	kube   kubernetes.Interface
	audit  string // file
	end    func()
	ended  chan error
}

func startEnding(t *testing.T) *ending {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &ending{t: t, audit: filepath.Join(dir, "audit.log"), ended: make(chan error, 1)}
	c, err := New(Options{
		DataDir: filepath.Join(dir, "data"), Etcd: &EtcdOptions{Socket: filepath.Join(dir, "etcd.sock")}, NodeName: "n1",
		AdvertiseAddress: net.IPv4(127, 0, 0, 1),
		APIServerArgs:    []string{"audit-policy-file=" + policy, "audit-log-path=" + e.audit, "audit-log-mode=batch"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Longer than the test waits for requests that are to end at once.
	c.plane.api.Requests.Limits.ShutdownGrace = 2 * patience
	ctx, cancel := context.WithCancel(context.Background())
	e.end = cancel
	go func() { e.ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-e.ended //nolint:errcheck // the test has looked at it
	})
	select {
	case <-c.APIReady():
	case err := <-e.ended:
		e.ended <- err
		t.Fatal(err)
	}
	e.config = c.Config()
	if e.kube, err = kubernetes.NewForConfig(e.config); err != nil {
		t.Fatal(err)
	}
	return e
}

// body starts a request with a body that does not end. The channel is closed
// when the server has ended it.
func (e *ending) body(client *http.Client) (ended <-chan struct{}) {
	e.t.Helper()
	body, fill := io.Pipe()
	e.t.Cleanup(func() { _ = fill.Close() })
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.config.Host+"/api/v1/namespaces/default/configmaps", body)
	if err != nil {
		e.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	if _, err := io.WriteString(fill, "{"); err != nil {
		e.t.Fatal(err)
	}
	return done
}

// stream reads an endless response of a kubelet. The channel is closed when the
// server has ended it.
func (e *ending) stream() (ended <-chan struct{}) {
	e.t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	e.t.Cleanup(kubelet.Close)
	at := kubelet.Listener.Addr().(*net.TCPAddr)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: v1.NodeStatus{
		Addresses:       []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: at.IP.String()}},
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: int32(at.Port)}},
	}}
	if _, err := e.kube.CoreV1().Nodes().Create(e.t.Context(), node, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	logs, err := e.kube.CoreV1().RESTClient().Get().Resource("nodes").Name("n2").SubResource("proxy").Suffix("logs/").Stream(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := logs.Read(make([]byte, 1)); err != nil {
		e.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, logs)
		_ = logs.Close()
	}()
	return done
}

// short starts to create a ConfigMap, which a webhook delays until it is
// released. The channel gets the result. The server calls a new webhook soon,
// not at once: dry runs show when.
func (e *ending) short(release <-chan struct{}) (result <-chan error) {
	e.t.Helper()
	arrived, called := make(chan struct{}, 1), make(chan struct{}, 1)
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if *review.Request.DryRun {
			select {
			case called <- struct{}{}:
			default:
			}
		} else {
			arrived <- struct{}{}
			<-release
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	e.t.Cleanup(webhook.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	labels, none := map[string]string{"slow": "true"}, admissionregistrationv1.SideEffectClassNone
	if _, err := e.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(e.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "slow.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			ClientConfig:   admissionregistrationv1.WebhookClientConfig{URL: &webhook.URL, CABundle: authority},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: labels},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	create := func(ctx context.Context, options metav1.CreateOptions) error {
		_, err := e.kube.CoreV1().ConfigMaps("default").Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "short", Labels: labels}}, options)
		return err
	}
	for len(called) == 0 {
		if err := create(e.t.Context(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			e.t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- create(context.Background(), metav1.CreateOptions{}) }()
	select {
	case <-arrived:
	case err := <-done:
		e.t.Fatalf("the webhook was not asked: %v", err)
	}
	return done
}

// TestALostEtcdLeavesTheDirectoryToItsUsers checks that a temporary data
// directory is removed only after the components that use it have ended.
func TestALostEtcdLeavesTheDirectoryToItsUsers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := c.plane
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits, answered := make(chan struct{}), make(chan struct{})
	p.group.Go(ctx, "waits-for-etcd", func(context.Context) error {
		close(waits)
		<-answered
		return nil
	})
	<-waits
	cancel()
	closed := p.closeLater(ctx)
	if _, err := os.Stat(p.settings.DataDir); err != nil {
		t.Errorf("while a component runs: %v", err)
	}
	close(answered)
	<-closed
	if _, err := os.Stat(p.settings.DataDir); !os.IsNotExist(err) {
		t.Errorf("after the last component: %v, want no directory", err)
	}
}

// TestWhatIsUnderWayAtTheEnd stops a cluster with requests in progress: short
// requests are finished, with etcd available, and audited. Long-running ones
// end at once.
func TestWhatIsUnderWayAtTheEnd(t *testing.T) {
	e := startEnding(t)
	first, err := rest.HTTPClientFor(e.config)
	if err != nil {
		t.Fatal(err)
	}
	old := rest.CopyConfig(e.config)
	old.NextProtos = []string{"http/1.1"}
	second, err := rest.HTTPClientFor(old)
	if err != nil {
		t.Fatal(err)
	}
	lasting := map[string]<-chan struct{}{"a body": e.body(first), "a body over HTTP/1.1": e.body(second), "a stream": e.stream()}
	release := make(chan struct{})
	short := e.short(release)
	e.end()
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for what, ended := range lasting {
		select {
		case <-ended:
		case <-late.Done():
			t.Errorf("%s that does not end keeps the cluster from ending", what)
		}
	}
	close(release)
	if err := <-short; err != nil {
		t.Errorf("a short request: %v", err)
	}
	select {
	case err := <-e.ended:
		e.ended <- err
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the cluster does not end")
	}
	if log, err := os.ReadFile(e.audit); err != nil || !bytes.Contains(log, []byte(`"name":"short"`)) {
		t.Errorf("the short request is not recorded: %v", err)
	}
}
