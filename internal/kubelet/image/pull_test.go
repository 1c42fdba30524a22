package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
)

func TestNormalize(t *testing.T) {
	for name, want := range map[string]string{
		"nginx":                    "nginx:latest",
		"nginx:1":                  "nginx:1",
		"localhost:5000/nginx":     "localhost:5000/nginx:latest",
		"Registry.example.com/app": "Registry.example.com/app:latest",
		"app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef": "app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"":          "",
		"two words": "",
		"an/UPPER":  "",
		"nginx:":    "",
		"-dash":     "",
	} {
		got, err := normalize(name)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("Normalize(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
}

// asked records what a runtime is asked about images.
type asked struct {
	internalapi.ImageManagerService
	specs []*runtimeapi.ImageSpec
}

func (a *asked) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	a.specs = append(a.specs, image)
	return a.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

func (a *asked) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	a.specs = append(a.specs, image)
	return a.ImageManagerService.ImageStatus(ctx, image, verbose)
}

// A runtime may choose an image, or where it is kept, by the annotations of the pod.
func TestRuntimeIsToldOfAnnotations(t *testing.T) {
	images := &asked{ImageManagerService: inmemorytest.New().Images()}
	sandbox := &runtimeapi.PodSandboxConfig{Annotations: map[string]string{"example.com/platform": "arm64"}}
	c := &v1.Container{Image: "example.com/app:1", ImagePullPolicy: v1.PullIfNotPresent}
	if _, err := newPuller(images, 0).Ensure(t.Context(), c, "pod", Logins{}, sandbox, func(string, string, string) {}); err != nil {
		t.Fatal(err)
	}
	if len(images.specs) != 3 { // before the pull, the pull, and after it
		t.Errorf("the runtime was asked %d times", len(images.specs))
	}
	for _, spec := range images.specs {
		if spec.GetImage() != c.Image || spec.GetAnnotations()["example.com/platform"] != "arm64" {
			t.Errorf("the runtime was asked about %v", spec)
		}
	}
}

// slow takes a second for each pull and counts how many are under way at once.
type slow struct {
	internalapi.ImageManagerService
	mu        sync.Mutex // guards what follows
	now, most int
}

func (s *slow) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return s.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

func TestPullsAtATime(t *testing.T) {
	for _, test := range []struct {
		parallel, most, seconds int
		measured                float64 // of all pulls, with the time for which they wait
	}{{0, 6, 1, 6}, {1, 1, 6, 21}, {2, 2, 3, 12}} {
		synctest.Test(t, func(t *testing.T) {
			images := &slow{ImageManagerService: inmemorytest.New().Images()}
			p := newPuller(images, test.parallel)
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					c := &v1.Container{Image: fmt.Sprintf("app:%d", i), ImagePullPolicy: v1.PullAlways}
					if _, err := p.Ensure(t.Context(), c, "pod", Logins{}, nil, func(string, string, string) {}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if took := int(time.Since(began).Seconds()); images.most != test.most || took != test.seconds {
				t.Errorf("at most %d at a time: %d were, in %d s", test.parallel, images.most, took)
			}
			m := &dto.Metric{}
			if err := p.metrics.pulls.WithLabelValues("0-10MB").(prometheus.Metric).Write(m); err != nil {
				t.Fatal(err)
			}
			if got := m.GetHistogram(); got.GetSampleCount() != 6 || got.GetSampleSum() != test.measured {
				t.Errorf("at most %d at a time: %d pulls took %v s, want %v", test.parallel, got.GetSampleCount(), got.GetSampleSum(), test.measured)
			}
		})
	}
}

func TestPullsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuller(inmemorytest.New().Images(), 0)
		p.Limit = flowcontrol.NewTokenBucketRateLimiter(1, 2)
		pull := func(name string) error {
			_, err := p.Ensure(t.Context(), &v1.Container{Image: name, ImagePullPolicy: v1.PullAlways}, "pod", Logins{}, nil, func(string, string, string) {})
			return err
		}
		for i, want := range []string{"", "", "pull QPS exceeded", "pull QPS exceeded"} {
			err := pull(fmt.Sprintf("app:%d", i))
			if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
				t.Errorf("pull %d: %v, want %q", i, err, want)
			}
		}
		time.Sleep(time.Second)
		if err := pull("late:1"); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

// failing is an image service whose pulls fail.
type failing struct {
	internalapi.ImageManagerService
	err error
}

func (f failing) PullImage(context.Context, *runtimeapi.ImageSpec, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return "", f.err
}

// Of what registries answer, which a pod chooses, the node keeps little.
func TestLongReasonsOfFailedPulls(t *testing.T) {
	p := newPuller(failing{inmemorytest.New().Images(), errors.New(strings.Repeat("x", 1<<20))}, 0)
	for range 2 {
		var got *Error
		_, err := p.Ensure(t.Context(), &v1.Container{Image: "app", ImagePullPolicy: v1.PullAlways}, "pod", Logins{}, nil, func(string, string, string) {})
		if !errors.As(err, &got) || len(got.Message) > maxReason+100 || !strings.HasSuffix(got.Message, "xxx...") {
			t.Errorf("a reason of %d bytes", len(err.Error()))
		}
	}
}

// A runtime may say that a registry cannot be reached, or that a signature is wrong.
func TestReasonsOfFailedPulls(t *testing.T) {
	for _, test := range []struct{ err, reason, message string }{
		{"not found", ErrImagePull, "not found"},
		{"RegistryUnavailable: no route", RegistryUnavailable, "image pull failed for app because the registry is unavailable: no route"},
		{"SignatureValidationFailed", SignatureValidationFailed, "image pull failed for app because the signature validation failed"},
	} {
		p := newPuller(failing{inmemorytest.New().Images(), errors.New(test.err)}, 0)
		for _, want := range []Error{
			{test.reason, test.message}, {ImagePullBackOff, fmt.Sprintf(`Back-off pulling image "app": %s: %s`, test.reason, test.message)},
		} {
			var got *Error
			_, err := p.Ensure(t.Context(), &v1.Container{Image: "app", ImagePullPolicy: v1.PullAlways}, "pod", Logins{}, nil, func(string, string, string) {})
			if !errors.As(err, &got) || *got != want {
				t.Errorf("%s: %v, want %+v", test.err, err, want)
			}
			if !IsPullFailure(want.Reason) {
				t.Errorf("%s is not tried again", want.Reason)
			}
		}
	}
}
