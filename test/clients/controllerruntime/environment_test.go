package controllerruntime

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// deadline is the timeout of each condition.
const deadline = 3 * time.Minute

// restConfig is the configuration of the cluster. environment has installed the
// webhook configurations and the custom resource.
var (
	restConfig  *rest.Config
	environment *envtest.Environment
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if restConfig, err = config.GetConfig(); err != nil {
		fmt.Fprintln(os.Stderr, "finding the cluster (set KUBECONFIG):", err)
		return 1
	}
	environment = &envtest.Environment{
		UseExistingCluster:       ptr.To(true),
		Config:                   restConfig,
		CRDInstallOptions:        envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{greetingDefinition()}, CleanUpAfterUse: true},
		WebhookInstallOptions:    webhooks(),
		ControlPlaneStartTimeout: deadline,
	}
	if _, err := environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "installing the test environment:", err)
		return 1
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "removing the test environment:", err)
		}
	}()
	return m.Run()
}

// newScheme returns a scheme with the built-in kinds and the kinds of the
// tests.
func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, addGreetings(scheme))
	return scheme
}

// newClient returns a client that reads from the API server, not from a cache.
func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(restConfig, client.Options{Scheme: newScheme(t)})
	must(t, err)
	return c
}

// newNamespace creates a namespace with labels. It is deleted when the test
// ends.
func newNamespace(t *testing.T, c client.Client, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "controller-runtime-", Labels: labels}}
	must(t, c.Create(t.Context(), ns))
	t.Cleanup(func() { must(t, c.Delete(context.WithoutCancel(t.Context()), ns)) })
	return ns.Name
}

// newManager returns a manager without a metrics server.
func newManager(t *testing.T, options manager.Options) manager.Manager {
	t.Helper()
	options.Scheme = newScheme(t)
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	options.Controller.SkipNameValidation = ptr.To(true)
	mgr, err := ctrl.NewManager(restConfig, options)
	must(t, err)
	return mgr
}

// start runs the manager until stop is called or the test ends.
func start(t *testing.T, mgr manager.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		must(t, <-ended)
	}
	t.Cleanup(stop)
	return stop
}

// eventually waits until condition holds. It reports the last error only at the
// deadline.
func eventually(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, deadline, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v after %v", what, last, deadline)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
