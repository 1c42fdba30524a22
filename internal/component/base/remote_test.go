package base_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/component/base"
)

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://in.file:6443"}}]
users: [{name: a, user: {token: t}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`

// serverOf returns the API server of a provider.
func serverOf(t *testing.T, master, kubeconfig string) (string, error) {
	t.Helper()
	p, err := base.Remote(master, kubeconfig, "kube-scheduler")
	if err != nil {
		return "", err
	}
	own, err := p.As("system:kube-scheduler", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	return own.Kubernetes.CoreV1().RESTClient().Get().URL().Host, nil
}

func TestRemote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, pod, master, kubeconfig, server, err string }{
		{name: "kubeconfig", kubeconfig: file, server: "in.file:6443"},
		{name: "master", master: "http://127.0.0.1:8080", server: "127.0.0.1:8080"},
		{name: "master and kubeconfig", master: "https://10.0.0.1:6443", kubeconfig: file, server: "10.0.0.1:6443"},
		{name: "a file that does not exist", kubeconfig: file + "x", err: "--kubeconfig=" + file + "x: "},
		{name: "nothing", err: "the kube-scheduler needs --kubeconfig"},
		{name: "in a pod", pod: "10.0.0.1", err: "/var/run/secrets/kubernetes.io/serviceaccount/token: no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", test.pod) // as the kubelet sets it in pods
			t.Setenv("KUBERNETES_SERVICE_PORT", test.pod)
			got, err := serverOf(t, test.master, test.kubeconfig)
			if got != test.server || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v, want %q, %q", got, err, test.server, test.err)
			}
		})
	}
}
