// Package unixsocket connects to sockets, also those whose paths are longer than the kernel
// takes.
package unixsocket

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Client returns a gRPC client of what serves at the socket at path, such as a plugin. It
// connects with the first call. Answers have at most maxAnswer bytes.
func Client(path string, maxAnswer int, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///localhost", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return Dial(ctx, path) }),
	}, more...)...)
}

// maxPath is the length of a socket's path, in bytes, that the kernel takes: sun_path
// without its last zero.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Dial connects to the socket at path, which may be longer than maxPath (107 bytes): a
// driver knows its socket by a shorter path of its container. The name of the socket
// itself has a bound of some 80 bytes then.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	dialer := &net.Dialer{}
	if len(path) <= maxPath {
		return dialer.DialContext(ctx, "unix", path)
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	defer func() { _ = dir.Close() }()
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}
