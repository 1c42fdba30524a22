package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/mountinfo"
)

// namespaces are the network namespaces that containerd makes for sandboxes.
type namespaces struct{ runtime *Runtime }

// list returns the files that keep them.
func (n namespaces) list() ([]string, error) {
	dir := filepath.Join(n.runtime.config.stateDir(), "io.containerd.grpc.v1.cri", "netns")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []string
	for _, e := range entries {
		files = append(files, filepath.Join(dir, e.Name()))
	}
	return files, err
}

// removeLost removes those that no sandbox has.
// containerd makes one before it records whose it is, and does not look for it if
// it was killed in between. The namespaces must be from before containerd started,
// so that none is of a sandbox that is being made.
func (n namespaces) removeLost(ctx context.Context, from []string) error {
	if len(from) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := n.runtime.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	sandboxes, err := sandboxIDs(ctx, conn)
	if err != nil {
		return err
	}
	client := runtimeapi.NewRuntimeServiceClient(conn)
	held := map[string]bool{}
	for id := range sandboxes {
		file, err := namespaceOf(ctx, client, id)
		if err != nil && status.Code(err) != codes.NotFound { // it was removed meanwhile
			return err
		}
		held[file] = true
	}
	var errs []error
	for _, file := range from {
		if held[file] {
			continue
		}
		if err := mountinfo.Detach(file); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// namespaceOf returns the file that keeps the network namespace of a sandbox, "" if
// it has that of the machine. It fails if containerd does not say which it is.
func namespaceOf(ctx context.Context, client runtimeapi.RuntimeServiceClient, sandbox string) (string, error) {
	answer, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		return "", err
	}
	if answer.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return "", nil
	}
	var info struct {
		SandboxMetadata struct{ Metadata struct{ NetNSPath string } }
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		return "", fmt.Errorf("details of sandbox %s: %w", sandbox, err)
	}
	file := info.SandboxMetadata.Metadata.NetNSPath
	if file == "" {
		return "", fmt.Errorf("containerd does not say which network namespace sandbox %s has", sandbox)
	}
	return file, nil
}
