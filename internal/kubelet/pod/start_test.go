package pod

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// The first instance that a runtime knows does not write to the log of one that it
// has lost.
func TestRestartCountFollowsTheLogs(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  int
	}{
		{nil, 0},
		{[]string{"0.log"}, 1},
		{[]string{"0.log", "2.log", "10.log"}, 11},
		{[]string{"3.log.20261129-101500", "2.log.20261129-101400.gz", "2.log"}, 4},
		{[]string{"5.log.20261129-101500", "6.log.20261129-101400.gz"}, 7},
		{[]string{"145.log.log.20261129-101500"}, 146},
		{[]string{"92233720368547758089223372036854775808.log", "23.log", "23a.log", "1aaa.log"}, 24},
		{[]string{"other", "x.log", "7", "12log", "-42.log", "my42.log", "old.23.log"}, 0},
	} {
		fs := &files.Memory{}
		if len(test.names) > 0 {
			if err := fs.MkdirAll("/logs/main", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range test.names {
			if err := fs.WriteFile("/logs/main/"+name, nil, 0o640); err != nil {
				t.Fatal(err)
			}
		}
		r := &running{config: &Config{Files: fs}, sandbox: &runtimeapi.PodSandboxConfig{LogDirectory: "/logs"}}
		if got := r.afterLogs("main"); got != test.want {
			t.Errorf("after the logs %q the restart count is %d, want %d", test.names, got, test.want)
		}
	}
}

// Events and the waiting message of a container show what the runtime said, without
// the code of its answer.
func TestStartErrorIsWhatTheRuntimeSaid(t *testing.T) {
	for want, err := range map[string]error{
		`exec: "nope": not found`: grpcstatus.Error(codes.Unknown, `exec: "nope": not found`),
		"no such key":             errors.New("no such key"),
	} {
		failed := &startError{reason: "RunContainerError", err: err}
		if got := failed.Error(); got != want || !errors.Is(failed, err) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Collectors of logs find the logs of containers by links in one directory.
func TestLinkToTheLog(t *testing.T) {
	disk := &files.Memory{}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	r := &running{
		config: &Config{Files: disk, Node: spec.Node{Configuration: &kubeletconfig.KubeletConfiguration{PodLogsDir: "/var/log/pods"}}},
		pod:    pod, sandbox: &runtimeapi.PodSandboxConfig{LogDirectory: "/var/log/pods/default_web_uid"},
	}
	const link = "/var/log/containers/web_default_main-1.log"
	r.linkLog(t.Context(), "main", "1", "main/0.log")
	if target, err := disk.Readlink(link); err == nil {
		t.Errorf("a link to %s, which is not there", target)
	}
	if err := disk.MkdirAll("/var/log/pods/default_web_uid/main", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile("/var/log/pods/default_web_uid/main/0.log", nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.linkLog(t.Context(), "main", "1", "main/0.log")
		if target, err := disk.Readlink(link); err != nil || target != "../pods/default_web_uid/main/0.log" {
			t.Errorf("the link leads to %q (%v)", target, err)
		}
		if _, err := disk.Stat(link); err != nil {
			t.Error(err)
		}
	}
}

// The gates and the configuration say how long a container that ends waits.
func TestRestartPeriods(t *testing.T) {
	for _, test := range []struct {
		gates            string
		configured       time.Duration
		initial, maximum time.Duration
	}{
		{"", 5 * time.Minute, 10 * time.Second, 5 * time.Minute},
		{"", 3 * time.Second, 3 * time.Second, 3 * time.Second},
		{"KubeletCrashLoopBackOffMax=false", 3 * time.Second, 10 * time.Second, 5 * time.Minute},
		{"ReduceDefaultCrashLoopBackOffDecay=true", 5 * time.Minute, time.Second, 5 * time.Minute},
		{"ReduceDefaultCrashLoopBackOffDecay=true,KubeletCrashLoopBackOffMax=false", 5 * time.Minute, time.Second, time.Minute},
	} {
		features, err := feature.Parse(strings.Split(test.gates, ","))
		if err != nil {
			t.Fatal(err)
		}
		if got := newRetries(features, test.configured).restarts; got.Initial != test.initial || got.Max != test.maximum {
			t.Errorf("%q, %s: from %s to %s", test.gates, test.configured, got.Initial, got.Max)
		}
	}
}

// Of an error of the runtime, which may quote the whole configuration of a container, the
// node keeps what a status shows.
func TestCausesAreBounded(t *testing.T) {
	r := newRetries(nil, time.Minute)
	long := strings.Repeat("x", 1<<20)
	for name, err := range map[string]error{
		"CreateContainerError": errors.New(long), "RunContainerError": &startError{reason: "RunContainerError", err: errors.New(long)},
		"InvalidImageName": &image.Error{Reason: "InvalidImageName", Message: long},
	} {
		r.setCause("main", err)
		if cause := r.causes()["main"]; cause.Reason != name || len(cause.Message) != maxCause {
			t.Errorf("%s: the container waits for %s, with a message of %d bytes", name, cause.Reason, len(cause.Message))
		}
	}
	r.forget()
	if causes := r.causes(); len(causes) != 0 {
		t.Errorf("of a pod that has ended are kept %v", causes)
	}
}

// Mounts of image volumes name the images that were found, and others stay as they are.
func TestMountsNameImages(t *testing.T) {
	found := containerImages{mounted: map[string]*runtimeapi.Image{"example.com/model": {Id: "sha256:1"}, "example.com/nameless": {}}}
	mounts := []*runtimeapi.Mount{
		{ContainerPath: "/host", HostPath: "/srv"},
		{ContainerPath: "/model", Image: &runtimeapi.ImageSpec{Image: "example.com/model"}},
		{ContainerPath: "/nameless", Image: &runtimeapi.ImageSpec{Image: "example.com/nameless"}},
	}
	found.name(mounts)
	var got []string
	for _, m := range mounts {
		got = append(got, m.GetImage().GetImage()+" "+m.GetImage().GetUserSpecifiedImage())
	}
	if text := strings.Join(got, ", "); text != " , sha256:1 example.com/model, example.com/nameless " {
		t.Errorf("the mounts name %q", text)
	}
}
