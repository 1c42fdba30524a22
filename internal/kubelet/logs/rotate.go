// Package logs reads the logs of containers and keeps them from growing
// without bound. Rotator corresponds to upstream's container log manager.
//
//	0.log                     the runtime writes here
//	0.log.20261121-070000     the one before it, as it was
//	0.log.20261121-060000.gz  older ones
package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Suffixes of the names of compressed logs, and of those being compressed.
const (
	compressedSuffix = ".gz"
	temporarySuffix  = ".tmp"
)

const stamp = "20060102-150405"

// Rotator rotates logs.
type Rotator struct {
	configuration *kubeletconfig.KubeletConfiguration
	maxBytes      int64 // size at which a log is rotated
	reopen        func(ctx context.Context, containerID string) error
}

// NewRotator returns a Rotator, nil if containerLogMaxSize is negative: logs grow
// without bound then. reopen makes the runtime write the log of a container to a
// new file.
func NewRotator(c *kubeletconfig.KubeletConfiguration, reopen func(ctx context.Context, containerID string) error) (*Rotator, error) {
	limit, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return nil, fmt.Errorf("containerLogMaxSize %q: %w", c.ContainerLogMaxSize, err)
	}
	if limit.Sign() < 0 {
		return nil, nil
	}
	return &Rotator{configuration: c, maxBytes: limit.Value(), reopen: reopen}, nil
}

// Run rotates the logs of the containers that running returns, once in every
// containerLogMonitorInterval, until ctx ends.
func (r *Rotator) Run(ctx context.Context, running func() []*cri.Container) {
	supervise.Every(ctx, r.configuration.ContainerLogMonitorInterval.Duration, func() {
		for _, c := range running() {
			err := supervise.Call(func() error { return r.Rotate(ctx, c.ID, c.LogPath) })
			if err != nil {
				supervise.LogFailure(ctx, "logs", err, "Rotating a container's log failed, will try again", "log", c.LogPath)
			}
		}
	})
}

// Rotate renames the log of a running container if it is too large, compresses
// earlier ones and removes the oldest. If the log is missing, because a
// rotation was interrupted or someone removed it, the runtime reopens it.
func (r *Rotator) Rotate(ctx context.Context, containerID, log string) error {
	info, err := os.Lstat(log)
	if errors.Is(err, fs.ErrNotExist) {
		return r.restore(ctx, containerID, log)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() < r.maxBytes {
		return nil
	}
	old, err := rotated(log)
	if err != nil {
		return err
	}
	aside := log + "." + time.Now().Format(stamp)
	if slices.Contains(old, aside) || slices.Contains(old, aside+compressedSuffix) {
		return nil // the last one was moved in the same second
	}
	remove, uncompressed := selectRotated(old, int(*r.configuration.ContainerLogMaxFiles)-2) // the new log and the one renamed now are not in old
	for _, path := range remove {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for _, path := range uncompressed {
		if err := compress(ctx, path); err != nil {
			return fmt.Errorf("compress %s: %w", path, err)
		}
	}
	if err := os.Rename(log, aside); err != nil {
		return err
	}
	if err := r.reopen(ctx, containerID); err != nil {
		return errors.Join(fmt.Errorf("reopen the log of container %s: %w", containerID, err), os.Rename(aside, log))
	}
	return nil
}

// restore makes the runtime create a log that is missing. A container whose
// runtime writes no log has no path, and the directory of a removed pod is gone.
func (r *Rotator) restore(ctx context.Context, containerID, log string) error {
	if log == "" {
		return nil
	}
	_, err := os.Lstat(filepath.Dir(log))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.reopen(ctx, containerID); err != nil {
		return fmt.Errorf("reopen the missing log of container %s: %w", containerID, err)
	}
	return nil
}

// Remove removes the log of a container and its rotated files.
func Remove(log string) error {
	old, err := rotated(log)
	for _, path := range append(old, log) {
		if failed := os.Remove(path); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// rotated returns the rotated files of a log, the oldest first.
func rotated(log string) ([]string, error) {
	dir, base := filepath.Split(log)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), base+".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// selectRotated selects the rotated files to remove, so that at most keep remain, and
// those to compress. It removes what an interrupted compression left.
func selectRotated(paths []string, keep int) (remove, uncompressed []string) {
	var whole []string
	for _, path := range paths {
		if strings.HasSuffix(path, temporarySuffix) || slices.Contains(paths, path+compressedSuffix) {
			remove = append(remove, path)
			continue
		}
		whole = append(whole, path)
	}
	surplus := max(len(whole)-max(keep, 0), 0)
	remove = append(remove, whole[:surplus]...)
	for _, path := range whole[surplus:] {
		if !strings.HasSuffix(path, compressedSuffix) {
			uncompressed = append(uncompressed, path)
		}
	}
	return remove, uncompressed
}

// sparse reports whether most of a file is holes, which no runtime writes.
func sparse(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Blocks*512 < info.Size()/2
}

// compress replaces a file by its compressed form atomically. It removes what
// cannot be a log, because compressing it could take forever.
func compress(ctx context.Context, path string) (err error) {
	in, err := openLog(path)
	if errors.Is(err, files.ErrNotRegular) || errors.Is(err, syscall.ELOOP) {
		return os.Remove(path)
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if sparse(info) {
		return os.Remove(path)
	}
	out, err := os.OpenFile(path+temporarySuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path + temporarySuffix)
		}
	}()
	w := gzip.NewWriter(out)
	_, err = io.Copy(w, io.LimitReader(untilDone{ctx, in}, info.Size()))
	if err = errors.Join(err, w.Close(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+temporarySuffix, path+compressedSuffix); err != nil {
		return err
	}
	return os.Remove(path)
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context //nolint:containedctx // lives for one copy
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
