package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/util/cert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/server"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/pki"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/timespan"
)

// newServer makes the server with the node's certificate and its rules of access.
func (k *Kubelet) newServer(_ context.Context) (*server.Server, error) {
	c := &k.config.Configuration
	getCertificate, err := k.certificate()
	if err != nil {
		return nil, err
	}
	clientCAs, err := k.clientCAs()
	if err != nil {
		return nil, err
	}
	authn, err := k.authenticator(clientCAs)
	if err != nil {
		return nil, err
	}
	authz, err := k.authorizer()
	if err != nil {
		return nil, err
	}
	systemLogs := ""
	if *c.EnableSystemLogHandler {
		systemLogs = "/var/log"
	}
	return server.Listen(server.Config{
		Backend: backend{k}, NodeName: k.config.NodeName, Address: c.Address, Port: c.Port,
		HealthzAddress: c.HealthzBindAddress, HealthzPort: *c.HealthzPort, GetCertificate: getCertificate,
		ClientCAs: clientCAs, StreamIdle: c.StreamingConnectionIdleTimeout.Duration,
		Metrics: k.config.Metrics, Authenticator: authn, Authorizer: authz, Debugging: *c.EnableDebuggingHandlers, Profiling: *c.EnableProfilingHandler, SystemLogs: systemLogs,
	})
}

func (k *Kubelet) certificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if k.config.GetCertificate != nil {
		return k.config.GetCertificate, nil
	}
	c := &k.config.Configuration
	if c.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSPrivateKeyFile)
		if err != nil {
			return nil, fmt.Errorf("load the kubelet's certificate: %w", err)
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(k.config.Hostname, k.config.NodeIPs, nil)
	if err != nil {
		return nil, fmt.Errorf("make the kubelet's self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}

// clientCAs are the authorities of client certificates as they are now; nil for
// none.
func (k *Kubelet) clientCAs() (func() *x509.CertPool, error) {
	file := k.config.Configuration.Authentication.X509.ClientCAFile
	if k.config.ClientCAs != nil || file == "" {
		return k.config.ClientCAs, nil
	}
	follow, err := pki.FollowAuthority(file)
	if err != nil {
		return nil, fmt.Errorf("read clientCAFile: %w", err)
	}
	return follow, nil
}

// authenticator knows client certificates and, by asking the API server, tokens.
func (k *Kubelet) authenticator(clientCAs func() *x509.CertPool) (authenticator.Request, error) {
	if k.config.Authenticator != nil {
		return k.config.Authenticator, nil
	}
	c := &k.config.Configuration.Authentication
	var all []authenticator.Request
	if clientCAs != nil {
		all = append(all, requestx509.NewDynamic(func() (x509.VerifyOptions, bool) {
			o := requestx509.DefaultVerifyOptions()
			o.Roots = clientCAs()
			return o, o.Roots != nil
		}, requestx509.CommonNameUserConversion))
	}
	delegating := authenticatorfactory.DelegatingAuthenticatorConfig{
		CacheTTL: c.Webhook.CacheTTL.Duration, TokenAccessReviewTimeout: 10 * time.Second, WebhookRetryBackoff: options.DefaultAuthWebhookRetryBackoff(),
	}
	if *c.Anonymous.Enabled {
		delegating.Anonymous = &apiserverconfig.AnonymousAuthConfig{Enabled: true}
	}
	if *c.Webhook.Enabled && k.config.Client != nil {
		delegating.TokenAccessReviewClient = k.config.Client.Kubernetes.AuthenticationV1()
	}
	if delegating.Anonymous != nil || delegating.TokenAccessReviewClient != nil {
		request, _, err := delegating.New()
		if err != nil {
			return nil, err
		}
		all = append(all, request)
	}
	if len(all) == 0 {
		return nil, errors.New("nobody could authenticate to the kubelet: set authentication.x509.clientCAFile, authentication.webhook or authentication.anonymous")
	}
	return union.New(all...), nil
}

func (k *Kubelet) authorizer() (authorizer.Authorizer, error) {
	c := &k.config.Configuration.Authorization
	switch {
	case k.config.Authorizer != nil:
		return k.config.Authorizer, nil
	case c.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case c.Mode != kubeletconfig.KubeletAuthorizationModeWebhook:
		return nil, fmt.Errorf("authorization.mode %q is not known (--authorization-mode): use Webhook or AlwaysAllow", c.Mode)
	case k.config.Client == nil:
		return nil, errors.New("nobody can be authorized: authorization.mode Webhook asks an API server (--kubeconfig); without one set enableServer: false, or AlwaysAllow to let in everybody who authenticates")
	}
	delegating := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: k.config.Client.Kubernetes.AuthorizationV1(),
		AllowCacheTTL:             c.Webhook.CacheAuthorizedTTL.Duration, DenyCacheTTL: c.Webhook.CacheUnauthorizedTTL.Duration,
		WebhookRetryBackoff: options.DefaultAuthWebhookRetryBackoff(),
	}
	return delegating.New()
}

// backend answers for the kubelet.
type backend struct{ k *Kubelet }

var _ server.Backend = backend{}

// shownPod is a pod with the status that the kubelet knows.
func (w *worker) shownPod() *v1.Pod {
	pod := w.current().DeepCopy()
	pod.Status = w.previous(pod)
	return pod
}

// Pods implements server.Backend.
func (b backend) Pods() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range b.k.list() {
		if !w.orphan {
			out = append(out, w.shownPod())
		}
	}
	return out
}

// Pod implements server.Backend. The uid may be that of a static pod's mirror.
func (b backend) Pod(namespace, name string, uid types.UID) (*v1.Pod, error) {
	for _, w := range b.k.list() {
		pod := w.current()
		if pod.Namespace != namespace || pod.Name != name || w.orphan {
			continue
		}
		if uid == "" || pod.UID == uid {
			return w.shownPod(), nil
		}
		if mirror := b.k.mirrorOf(pod); w.static && mirror != nil && mirror.UID == uid {
			return w.shownPod(), nil
		}
	}
	return nil, server.ErrNotFound
}

// RunningPods implements server.Backend.
func (b backend) RunningPods(ctx context.Context) ([]*v1.Pod, error) {
	found, err := cri.List(ctx, b.k.runtime)
	if err != nil {
		return nil, err
	}
	var out []*v1.Pod
	for uid, s := range found {
		if !s.Running() {
			continue
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, UID: uid}}
		if observed, err := cri.Observe(ctx, b.k.runtime, uid); err == nil {
			for _, c := range observed.Running() {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
			}
		}
		out = append(out, pod)
	}
	return out, nil
}

// observed asks the runtime anew, so that a container that has just started is found.
func (b backend) observed(pod *v1.Pod) (*cri.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return cri.Observe(ctx, b.k.runtime, pod.UID)
}

// ContainerID implements server.Backend.
func (b backend) ContainerID(pod *v1.Pod, container string) (string, error) {
	observed, err := b.observed(pod)
	if err != nil {
		return "", err
	}
	c := observed.Find(container)
	if c == nil || c.State != cri.Running {
		return "", fmt.Errorf("container not found (%q)", container)
	}
	return c.ID, nil
}

// SandboxID implements server.Backend.
func (b backend) SandboxID(pod *v1.Pod) (string, error) {
	observed, err := b.observed(pod)
	if err != nil {
		return "", err
	}
	s := observed.ReadySandbox()
	if s == nil {
		return "", fmt.Errorf("failed to find sandbox for pod %q", spec.PodName(pod))
	}
	return s.ID, nil
}

// Logs implements server.Backend.
func (b backend) Logs(ctx context.Context, pod *v1.Pod, container string, o *v1.PodLogOptions, stdout, stderr io.Writer) error {
	if podutil.Container(&pod.Spec, container) == nil {
		return fmt.Errorf("container %q in pod %q is not available: %w", container, pod.Name, server.ErrNotFound)
	}
	observed, err := b.observed(pod)
	if err != nil {
		return err
	}
	c := observed.Find(container)
	if c != nil && o.Previous {
		if c = observed.Previous(c); c == nil {
			return fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
		}
	}
	if c == nil || c.State == cri.Created {
		for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
			for _, st := range list {
				if st.Name == container && st.State.Waiting != nil {
					return fmt.Errorf("container %q in pod %q is waiting to start: %v", container, pod.Name, waitingText(st.State.Waiting))
				}
			}
		}
		return fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
	}
	options := logs.Options{Follow: o.Follow, Timestamps: o.Timestamps, Tail: o.TailLines, Limit: o.LimitBytes, Running: func(ctx context.Context) (bool, error) {
		return b.running(ctx, c.ID)
	}}
	if o.SinceSeconds != nil {
		options.Since = time.Now().Add(-timespan.Seconds(*o.SinceSeconds))
	}
	if o.SinceTime != nil {
		options.Since = o.SinceTime.Time
	}
	return logs.Read(ctx, c.LogPath, options, stdout, stderr)
}

// running asks the runtime whether a container runs. While the runtime does
// not answer, it is taken to.
func (b backend) running(ctx context.Context, id string) (bool, error) {
	answer, err := b.k.runtime.ContainerStatus(ctx, id, false)
	if status.Code(err) == codes.Unavailable {
		return true, nil
	}
	return answer.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, err
}

func waitingText(w *v1.ContainerStateWaiting) string {
	switch w.Reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return w.Reason
}

// Exec implements server.Backend.
func (b backend) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*url.URL, error) {
	answer, err := b.k.runtime.Exec(ctx, r)
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.GetUrl())
}

// Attach implements server.Backend.
func (b backend) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*url.URL, error) {
	answer, err := b.k.runtime.Attach(ctx, r)
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.GetUrl())
}

// PortForward implements server.Backend.
func (b backend) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*url.URL, error) {
	answer, err := b.k.runtime.PortForward(ctx, r)
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.GetUrl())
}

// RunCommand implements server.Backend.
func (b backend) RunCommand(ctx context.Context, containerID string, command []string) ([]byte, error) {
	return b.k.cri.Exec(ctx, containerID, command, 0)
}

// ProbeCounts implements server.Backend.
func (b backend) ProbeCounts() map[probe.Count]int { return b.k.prober.Counts() }

// Configuration implements server.Backend.
func (b backend) Configuration() any {
	c := b.k.config.Configuration
	c.TypeMeta = metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"}
	return &c
}

// Healthy implements server.Backend.
func (b backend) Healthy() error { return b.k.node.RuntimeError() }
