package pod

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
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
		{[]string{"other", "x.log", "7"}, 0},
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
