package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/cri-client/pkg/util"
	utilexec "k8s.io/utils/exec"
)

// maxOutput bounds, in bytes, what a command of a probe or hook writes. The
// runtime sends all of it in one message, which the kubelet has to keep until it
// is complete. Pods choose how many such commands run at a time.
const maxOutput = 1 << 20

// Exec runs a command in a container and returns its standard output followed
// by its standard error. A timeout of 0 means no timeout.
func Exec(ctx context.Context, runtime internalapi.RuntimeService, containerID string, command []string, timeout time.Duration) ([]byte, error) {
	stdout, stderr, err := runtime.ExecSync(ctx, containerID, command, timeout)
	return append(stdout, stderr...), err
}

// ExecBounded is Exec for commands of pods. The command fails if it writes more
// than 1 MiB.
func (c *Client) ExecBounded(ctx context.Context, containerID string, command []string, timeout time.Duration) (output []byte, err error) {
	if c.exec == nil {
		return Exec(ctx, c.Runtime(), containerID, command, timeout)
	}
	defer func(began time.Time) { c.runtime.metrics.observe("exec_sync", began, err) }(time.Now())
	return c.exec.run(ctx, containerID, command, timeout)
}

// execConnection is a connection to a runtime for commands alone, which refuses
// long messages.
type execConnection struct {
	conn    *grpc.ClientConn
	timeout time.Duration // of a call, besides the command's own
}

// connectExec returns a connection that dials the runtime when it is first used,
// and again after a failure. It has further options of gRPC.
func connectExec(endpoint string, timeout time.Duration, options ...grpc.DialOption) (*execConnection, error) {
	address, dialer, err := util.GetAddressAndDialer(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"), grpc.WithContextDialer(dialer),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: 3 * time.Second}, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxOutput)),
		grpc.WithStaticStreamWindowSize(64<<10), // what arrives before the message is refused
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the container runtime at %s: %w", endpoint, err)
	}
	return &execConnection{conn, timeout}, nil
}

// run runs a command as Exec does.
func (e *execConnection) run(ctx context.Context, containerID string, command []string, timeout time.Duration) ([]byte, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.timeout+timeout)
		defer cancel()
	}
	response, err := runtimeapi.NewRuntimeServiceClient(e.conn).ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: containerID, Cmd: command, Timeout: int64(timeout.Seconds()),
	})
	switch grpcstatus.Code(err) {
	case codes.OK:
	case codes.DeadlineExceeded:
		return nil, fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, strings.Join(command, " "), timeout)
	case codes.ResourceExhausted:
		return nil, fmt.Errorf("the command wrote more than %d bytes: %w", maxOutput, err)
	default:
		return nil, err
	}
	output := append(response.GetStdout(), response.GetStderr()...)
	if code := response.GetExitCode(); code != 0 {
		return output, utilexec.CodeExitError{
			Err: fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), code, response.GetStderr()), Code: int(code),
		}
	}
	return output, nil
}
