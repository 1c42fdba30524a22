package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEventTTL(t *testing.T) {
	s := startWhole(t, "--event-ttl=1s")
	events := s.clientset(s.admin()).CoreV1().Events("default")
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	if _, err := events.Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the event expires", func() bool {
		_, err := events.Get(t.Context(), "e", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestNegativeEventTTL(t *testing.T) {
	if err := commandLine(t, "--event-ttl=-1s").Validate(); err == nil || !strings.Contains(err.Error(), "--event-ttl") {
		t.Errorf("%v", err)
	}
}

// TestEnableGarbageCollector checks that deletions wait for the garbage collector
// only if there is one.
func TestEnableGarbageCollector(t *testing.T) {
	const maps, foreground = "/api/v1/namespaces/default/configmaps", `{"propagationPolicy":"Foreground"}`
	for flag, want := range map[string]int{"--enable-garbage-collector=true": http.StatusOK, "--enable-garbage-collector=false": http.StatusNotFound} {
		s := startWhole(t, flag)
		if code, body := s.do(s.admin(), "POST", maps, `{"metadata":{"name":"m"}}`); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", flag, code, body)
		}
		if code, body := s.do(s.admin(), "DELETE", maps+"/m", foreground); code != http.StatusOK {
			t.Errorf("%s: DELETE: %d %s", flag, code, body)
		}
		if code, body := s.do(s.admin(), "GET", maps+"/m", ""); code != want {
			t.Errorf("%s: GET after DELETE: %d %s, want %d", flag, code, body, want)
		}
	}
}

// TestNamespaceAutoProvision creates an object in a namespace that does not exist.
func TestNamespaceAutoProvision(t *testing.T) {
	s := startWhole(t, "--enable-admission-plugins=NamespaceAutoProvision")
	const maps = "/api/v1/namespaces/new/configmaps"
	if code, body := s.do(s.admin(), "POST", maps+"?dryRun=All", `{"metadata":{"name":"m"}}`); code != http.StatusNotFound {
		t.Errorf("a dry run: %d %s", code, body)
	}
	for range 2 {
		if code, body := s.do(s.admin(), "POST", maps, `{"metadata":{"generateName":"m-"}}`); code != http.StatusCreated {
			t.Errorf("%d %s", code, body)
		}
	}
	if code, body := s.do(s.admin(), "GET", "/api/v1/namespaces/new", ""); code != http.StatusOK || !strings.Contains(body, `"phase":"Active"`) {
		t.Errorf("the namespace: %d %s", code, body)
	}
}

func TestAllowPrivileged(t *testing.T) {
	const pod = `"spec":{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}`
	const namespace = "/api/v1/namespaces/default/"
	objects := map[string]string{
		namespace + "pods":         `{"metadata":{"name":"p"},` + pod + `}`,
		namespace + "podtemplates": `{"metadata":{"name":"p"},"template":{"metadata":{"labels":{"a":"b"}},` + pod + `}}`,
		"/apis/batch/v1/namespaces/default/jobs": `{"metadata":{"name":"p"},"spec":{"template":{` +
			strings.Replace(pod, `"spec":{`, `"spec":{"restartPolicy":"Never",`, 1) + `}}}`,
	}
	for flag, want := range map[string]int{
		"--allow-privileged=true": http.StatusCreated, "--allow-privileged=false": http.StatusUnprocessableEntity,
	} {
		s := startWhole(t, flag, "--disable-admission-plugins=ServiceAccount")
		for path, object := range objects {
			code, body := s.do(s.admin(), "POST", path, object)
			if code != want {
				t.Errorf("%s: POST %s: %d, want %d", flag, path, code, want)
			}
			if refused := strings.Contains(body, "securityContext.privileged: Forbidden: disallowed by cluster policy"); refused != (want != http.StatusCreated) {
				t.Errorf("%s: POST %s: %s", flag, path, body)
			}
		}
	}
}
