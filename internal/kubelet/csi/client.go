package csi

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/unixsocket"
	"github.com/coracle-io/coracle/internal/printable"
)

// Bounds of calls to drivers.
const (
	callTimeout = 2 * time.Minute // upstream's
	maxAnswer   = 1 << 20
	maxText     = 1 << 10 // of an error
	maxDriver   = 63
	// maxHandle bounds a driver's name for a volume. The node's status and the records
	// on the disk have it. CSI's own limit is 128.
	maxHandle = 4 << 10
)

// checkDriver returns an error for a name that no driver has, or that is not
// safe in paths.
func checkDriver(name string) error {
	if len(name) > maxDriver || !regexp.MustCompile(`^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?$`).MatchString(name) {
		return fmt.Errorf("invalid name of a CSI driver: %.64q", name)
	}
	if reserved := []string{"volumeDevices", "pv"}; slices.Contains(reserved, name) {
		return fmt.Errorf("the name %q of a CSI driver is reserved: it is a directory of the kubelet", name)
	}
	return nil
}

// endpoint is where a driver answers.
type endpoint struct {
	socket string
	paths  *hostpath.Directories // the driver knows them by their usual paths; nil: by the real ones
}

// named returns the path by which the driver knows one of the kubelet.
func (e endpoint) named(path string) string {
	if e.paths == nil {
		return path
	}
	return e.paths.Usual(path)
}

// call connects to the driver, and calls f within callTimeout. It bounds the
// text of an error.
func call(ctx context.Context, at endpoint, f func(ctx context.Context, node csipb.NodeClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := unixsocket.Client(at.socket, maxAnswer)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	err = f(ctx, csipb.NewNodeClient(conn))
	if s, ok := status.FromError(err); ok && err != nil {
		text := s.Message()
		return status.Error(s.Code(), printable.Line(text[:min(len(text), maxText)]))
	}
	return err
}

// callWhole is call for what changes the node. Once begun, the end of ctx does not
// interrupt it: the driver may be making or growing a file system. A driver that hangs
// is left after callTimeout.
func callWhole(ctx context.Context, at endpoint, f func(ctx context.Context, node csipb.NodeClient) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return call(context.WithoutCancel(ctx), at, f)
}

// isFinal reports whether a call that failed has had no effect. After other
// errors the driver may still be at work.
func isFinal(err error) bool {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return false
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted,
		codes.ResourceExhausted: // also of an answer that is too long
		return false
	}
	return true
}

// capabilities is the set of capabilities that the node service of a driver
// has.
type capabilities map[csipb.NodeServiceCapability_RPC_Type]bool

func askCapabilities(ctx context.Context, at endpoint) (capabilities, error) {
	out := capabilities{}
	err := call(ctx, at, func(ctx context.Context, node csipb.NodeClient) error {
		answer, err := node.NodeGetCapabilities(ctx, &csipb.NodeGetCapabilitiesRequest{})
		for _, c := range answer.GetCapabilities() {
			out[c.GetRpc().GetType()] = true
		}
		return err
	})
	return out, err
}
