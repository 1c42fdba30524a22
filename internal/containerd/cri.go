package containerd

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pollInterval is the interval at which a starting containerd, which needs some
// 15 ms, is asked whether it answers.
const pollInterval = 2 * time.Millisecond

// dial connects to the CRI. It returns when the CRI answers or ctx ends.
func (r *Runtime) dial(ctx context.Context) (*grpc.ClientConn, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	// gRPC would retry a refused connection only after a second.
	for {
		probe, err := (&net.Dialer{}).DialContext(ctx, "unix", r.config.socket())
		if err == nil {
			_ = probe.Close()
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
	conn, err := grpc.NewClient(r.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", r.Endpoint(), err)
	}
	for {
		if _, err = runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{}); err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			_ = conn.Close()
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// sandboxIDs returns the ids of all sandboxes. One that is being made or removed is not
// among them.
func sandboxIDs(ctx context.Context, conn *grpc.ClientConn) (map[string]bool, error) {
	answer, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	ids := map[string]bool{}
	for _, s := range answer.GetItems() {
		ids[s.GetId()] = true
	}
	return ids, err
}

// imageID returns the digest of the configuration of an image, or "" if there
// is no image of that name.
func imageID(ctx context.Context, conn *grpc.ClientConn, name string) (string, error) {
	answer, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(ctx, &runtimeapi.ImageStatusRequest{
		Image: &runtimeapi.ImageSpec{Image: name},
	})
	if err != nil {
		return "", fmt.Errorf("asking for image %s: %w", name, err)
	}
	return answer.GetImage().GetId(), nil
}
