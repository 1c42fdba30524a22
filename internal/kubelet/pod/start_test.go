package pod

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

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
