// Package unixsocket connects to sockets whose paths are longer than the kernel takes.
package unixsocket

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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
