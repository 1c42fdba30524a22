package admission

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apiserver/pkg/admission"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// imageServer is a webhook that refuses images with "bad" in their names, gives a
// reason if it is "very-bad", a large answer for "large" ones, and fails for "broken"
// ones.
type imageServer struct {
	mu    sync.Mutex // guards asked
	asked []imagepolicyv1alpha1.ImageReviewSpec
}

func (s *imageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review imagepolicyv1alpha1.ImageReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, review.Spec)
	s.mu.Unlock()
	images := fmt.Sprint(review.Spec.Containers)
	review.Status.Allowed = !strings.Contains(images, "bad")
	review.Status.AuditAnnotations = map[string]string{"seen": "yes"}
	if strings.Contains(images, "large") {
		review.Status.AuditAnnotations["seen"] = strings.Repeat("yes", largestReview)
	}
	if strings.Contains(images, "very-bad") {
		review.Status.Reason = "not signed"
	}
	if strings.Contains(images, "broken") {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(review)
}

func (s *imageServer) calls() []imagepolicyv1alpha1.ImageReviewSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// newImageServer returns a webhook, and the plugin that asks it by the given
// settings besides the kubeconfig.
func newImageServer(t *testing.T, settings string) (*imageServer, admission.ValidationInterface, *clocktesting.FakePassiveClock) {
	t.Helper()
	s := &imageServer{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: w, user: u}}], users: [{name: u}], clusters: [{name: w, cluster: {server: %q}}]}`, server.URL+"/images")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	configured, err := Configure("ImagePolicyWebhook", fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q, retryBackoff: 1, %s}", path, settings))
	if err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := config(objectstest.NewMemory())
	c.Clock, c.Configured = now, map[string]Configuration{"ImagePolicyWebhook": configured}
	return s, newImagePolicyWebhook(c).(admission.ValidationInterface), now
}

func withImages(images ...string) *corev1.Pod {
	return pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = images[0]
		for _, image := range images[1:] {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Image: image})
		}
	})
}

func TestImagePolicyWebhook(t *testing.T) {
	ephemeral := withImages("bad")
	ephemeral.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "good"}}}
	for name, test := range map[string]struct {
		settings string
		w        write
		want     string
		calls    int
	}{
		"allowed":                {"", write{resource: "pods", obj: withImages("good", "better")}, "", 1},
		"an update":              {"", write{op: admission.Update, resource: "pods", obj: withImages("bad"), old: withImages("good")}, `pods "p" is forbidden: one or more images rejected by webhook backend`, 1},
		"a reason":               {"", write{resource: "pods", obj: withImages("good", "very-bad")}, `pods "p" is forbidden: image policy webhook backend denied one or more images: not signed`, 1},
		"an ephemeral container": {"", write{op: admission.Update, resource: "pods/ephemeralcontainers", obj: ephemeral, old: withImages("bad")}, "", 1},
		"a failure, allowed":     {"defaultAllow: true", write{resource: "pods", obj: withImages("broken")}, "", 5},
		"status":                 {"", write{op: admission.Update, resource: "pods/status", obj: withImages("bad"), old: withImages("bad")}, "", 0},
		"another kind":           {"", write{resource: "nodes", obj: &corev1.Node{}}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, p, _ := newImageServer(t, test.settings)
			if got := run(t, p, test.w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if calls := s.calls(); len(calls) != test.calls {
				t.Errorf("the webhook was asked %v, want %d times", calls, test.calls)
			}
		})
	}
}

// TestUnavailableImagePolicy checks that pods are refused while the webhook fails,
// or marked if the configuration allows them.
func TestUnavailableImagePolicy(t *testing.T) {
	_, p, _ := newImageServer(t, "")
	if got := run(t, p, write{resource: "pods", obj: withImages("broken")}); !strings.HasPrefix(got, `pods "p" is forbidden: `) {
		t.Errorf("a pod is not refused: %q", got)
	}
	_, p, _ = newImageServer(t, "defaultAllow: true")
	o := withImages("broken")
	if got := run(t, p, write{resource: "pods", obj: o}); got != "" || o.Annotations["alpha.image-policy.k8s.io/failed-open"] != "true" {
		t.Errorf("%q, annotations %v", got, o.Annotations)
	}
}

// TestWhatTheImageWebhookSees checks the review.
func TestWhatTheImageWebhookSees(t *testing.T) {
	s, p, _ := newImageServer(t, "")
	o := withImages("a", "b")
	o.Annotations = map[string]string{"x.image-policy.k8s.io/ticket": "1", "other": "2"}
	if got := run(t, p, write{resource: "pods", obj: o}); got != "" {
		t.Fatal(got)
	}
	calls := s.calls()
	if len(calls) != 1 || len(calls[0].Containers) != 2 || calls[0].Containers[0].Image != "a" || calls[0].Containers[1].Image != "b" ||
		calls[0].Namespace != "web" || len(calls[0].Annotations) != 1 || calls[0].Annotations["x.image-policy.k8s.io/ticket"] != "1" {
		t.Errorf("%+v", calls)
	}
}

// TestImagePolicyIsRemembered checks how long answers are kept.
func TestImagePolicyIsRemembered(t *testing.T) {
	ask := func(t *testing.T, settings string, wait time.Duration, images ...string) int {
		s, p, now := newImageServer(t, settings)
		for range 2 {
			run(t, p, write{resource: "pods", obj: withImages(images...)})
			now.SetTime(now.Now().Add(wait))
		}
		return len(s.calls())
	}
	for name, test := range map[string]struct {
		settings string
		wait     time.Duration
		image    string
		calls    int
	}{
		"allowed":          {"", 299 * time.Second, "good", 1},
		"allowed long ago": {"", 301 * time.Second, "good", 2},
		"refused":          {"", 29 * time.Second, "bad", 1},
		"refused long ago": {"", 31 * time.Second, "bad", 2},
		"a short time":     {"allowTTL: 2", 3 * time.Second, "good", 2},
		"never":            {"denyTTL: -1", time.Nanosecond, "bad", 2},
		"a large answer":   {"", time.Second, "large", 2},
	} {
		if got := ask(t, test.settings, test.wait, test.image); got != test.calls {
			t.Errorf("%s: the webhook was asked %d times, want %d", name, got, test.calls)
		}
	}
}
