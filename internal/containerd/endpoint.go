package containerd

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// CheckEndpoint returns an error unless a container runtime listens on a CRI
// endpoint, such as unix:///run/containerd/containerd.sock. It does not speak
// CRI.
func CheckEndpoint(endpoint string) error {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return errors.New("must be the socket of a CRI runtime, such as unix:///run/containerd/containerd.sock")
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return fmt.Errorf("no runtime answers: %w", err)
	}
	return conn.Close()
}
