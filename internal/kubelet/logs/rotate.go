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
// containerLogMonitorInterval, until ctx ends. It compresses them beside that: a
// container that writes much in an interval does not keep the logs of others from being
// rotated, for whose size their pods are evicted.
func (r *Rotator) Run(ctx context.Context, running func() []*cri.Container) {
	var compressing supervise.WaitGroup
	defer compressing.Wait()
	compressing.Go(ctx, func() {
		r.each(ctx, running, "Compressing a container's log failed, will try again", func(c *cri.Container) error { return r.Compress(ctx, c.LogPath) })
	})
	r.each(ctx, running, "Rotating a container's log failed, will try again", func(c *cri.Container) error { return r.Rotate(ctx, c.ID, c.LogPath) })
}

// each calls work for each container in each interval. failed is what is logged of an
// error.
func (r *Rotator) each(ctx context.Context, running func() []*cri.Container, failed string, work func(c *cri.Container) error) {
	supervise.Every(ctx, r.configuration.ContainerLogMonitorInterval.Duration, func() {
		for _, c := range running() {
			if err := supervise.Call(func() error { return work(c) }); err != nil {
				supervise.LogFailure(ctx, "logs", err, failed, "log", c.LogPath)
			}
		}
	})
}

// Rotate renames the log of a running container if it is too large, and removes the
// oldest of the earlier ones. If the log is missing, because a rotation was interrupted
// or someone removed it, the runtime reopens it.
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
	whole, _ := selectRotated(old)
	keep := max(int(*r.configuration.ContainerLogMaxFiles)-2, 0) // the new log and the one renamed now are not in old
	if err := removeAll(whole[:max(len(whole)-keep, 0)]); err != nil {
		return err
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

// Compress compresses the rotated files of a log, except the newest: readers that follow
// the log may not have read its end. It removes what an interrupted compression left.
func (r *Rotator) Compress(ctx context.Context, log string) error {
	old, err := rotated(log)
	if err != nil {
		return err
	}
	whole, left := selectRotated(old)
	if err := removeAll(left); err != nil {
		return err
	}
	for _, path := range whole[:max(len(whole)-1, 0)] {
		if strings.HasSuffix(path, compressedSuffix) {
			continue
		}
		if err := compress(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been the oldest
			return fmt.Errorf("compress %s: %w", path, err)
		}
	}
	return nil
}

// removeAll removes files that may be gone.
func removeAll(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// selectRotated divides the rotated files of a log into whole ones, the oldest first, and
// what an interrupted compression left.
func selectRotated(paths []string) (whole, left []string) {
	for _, path := range paths {
		if strings.HasSuffix(path, temporarySuffix) || slices.Contains(paths, path+compressedSuffix) {
			left = append(left, path)
			continue
		}
		whole = append(whole, path)
	}
	return whole, left
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
	out, err := os.OpenFile(path+temporarySuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
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
	// Whoever may read the log may read it compressed, whatever the umask.
	if err = errors.Join(err, w.Close(), out.Chmod(info.Mode().Perm()), out.Close()); err != nil {
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
