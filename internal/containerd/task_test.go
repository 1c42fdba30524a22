package containerd

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestDeleteTask brings a container into the state in which an interrupted start
// leaves it: it has exited for the CRI, but its task runs.
func TestDeleteTask(t *testing.T) {
	r := testRuntime(t)
	defer runUntilReady(t, r)()
	id := startPod(t, r)
	ctx := t.Context()
	conn, err := r.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	if _, err := cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if output, err := r.ctr(ctx, "tasks", "start", "--detach", id).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	remove := func() error {
		_, err := cri.RemoveContainer(context.Background(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return err
	}
	if err := remove(); status.Code(err) != codes.FailedPrecondition {
		t.Fatalf("a container with a task: %v, want FailedPrecondition", err)
	}
	for range 2 { // the second finds no task
		if err := r.DeleteTask(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := remove(); err != nil {
		t.Errorf("a container without a task: %v", err)
	}
}
