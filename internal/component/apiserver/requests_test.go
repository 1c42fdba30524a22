package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequestFlags(t *testing.T) {
	s := startWhole(t, `--cors-allowed-origins=^https://[a-z]+\.example\.com(:|$)`, "--strict-transport-security-directives=max-age=600,preload",
		"--min-request-timeout=1", "--etcd-prefix=/staging")
	client := s.client(s.admin())
	header := func(origin string) http.Header {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.Header
	}
	own := header("https://one.example.com:8080")
	if got := own.Get("Access-Control-Allow-Origin"); got != "https://one.example.com:8080" {
		t.Errorf("an origin that is allowed gets %q", got)
	}
	if got := own.Get("Strict-Transport-Security"); got != "max-age=600; preload" {
		t.Errorf("Strict-Transport-Security is %q", got)
	}
	if got := header("https://example.com.evil").Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("an origin that is not allowed gets %q", got)
	}

	// A watch ends by itself, between one and two seconds from now.
	if code, body := s.do(s.admin(), "GET", "/api/v1/pods?watch=true&resourceVersion=0", ""); code != http.StatusOK || body != "" {
		t.Errorf("watch: %d %s", code, body)
	}

	if _, err := s.store.Get(t.Context(), "/staging/namespaces/kube-system"); err != nil {
		t.Errorf("not below --etcd-prefix: %v", err)
	}
	if _, err := s.store.Get(t.Context(), "/registry/namespaces/kube-system"); err == nil {
		t.Error("there is something in the usual place, too")
	}
	if _, err := s.clientset(s.admin()).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// A server that is shutting down reports not ready, and still serves for the
// time of --shutdown-delay-duration.
func TestShutdownDelay(t *testing.T) {
	s := startWhole(t, "--shutdown-delay-duration=2s")
	admin := s.admin()
	eventually(t, "/readyz is ok", func() bool {
		code, _ := s.do(admin, "GET", "/readyz", "")
		return code == http.StatusOK
	})
	s.end()
	eventually(t, "/readyz fails", func() bool {
		code, body := s.do(admin, "GET", "/readyz", "")
		return code == http.StatusInternalServerError && strings.Contains(body, "[-]shutdown failed")
	})
	if code, body := s.do(admin, "GET", "/livez", ""); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, body)
	}
	if code, body := s.do(admin, "POST", "/api/v1/namespaces", `{"metadata": {"name": "late"}}`); code != http.StatusCreated {
		t.Errorf("a write: %d %s", code, body)
	}
	if code, body := s.do(admin, "GET", "/api/v1/namespaces/late", ""); code != http.StatusOK {
		t.Errorf("the cache does not follow: %d %s", code, body)
	}
}

func TestRequestFlagsAreValidated(t *testing.T) {
	for flag, want := range map[string]string{
		"--request-timeout=0":                          "--request-timeout=0s: want more than 0",
		"--min-request-timeout=-1":                     "--min-request-timeout can not be negative value",
		"--livez-grace-period=-1s":                     "--livez-grace-period can not be a negative value",
		"--shutdown-delay-duration=-1s":                "--shutdown-delay-duration can not be negative value",
		"--http2-max-streams-per-connection=-1":        "--http2-max-streams-per-connection=-1",
		"--cors-allowed-origins=example":               "does not pin to start/end of host",
		"--strict-transport-security-directives=age=1": "--strict-transport-security-directives invalid",
		"--storage-backend=etcd2":                      "--storage-backend=etcd2 invalid, allowed values: etcd3",
		"--storage-media-type=application/x-none":      `--storage-media-type "application/x-none" invalid`,
		"--etcd-compaction-interval=-1s":               "--etcd-compaction-interval=-1s",
	} {
		if got := refusal(t, commandLine(t, flag)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", flag, got)
		}
	}
}
