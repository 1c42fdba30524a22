// Package logs reads the logs of containers and keeps them from growing
// without bound. Rotator stands for upstream's container log manager.
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

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The ends of the names of packed logs, and of those being packed.
const (
	packed  = ".gz"
	halfway = ".tmp"
)

const stamp = "20060102-150405"

// Rotator moves logs aside.
type Rotator struct {
	MaxBytes int64 // from which a log is moved aside
	MaxFiles int   // kept of a log, with the one being written; at least 2
	// Reopen makes the runtime write a container's log into a new file.
	Reopen func(ctx context.Context, containerID string) error
}

// Run rotates the logs of the containers that running returns, once in a
// period, until ctx ends.
func (r *Rotator) Run(ctx context.Context, period time.Duration, running func() []*cri.Container) {
	supervise.Every(ctx, period, func() {
		for _, c := range running() {
			err := supervise.Call(func() error { return r.Rotate(ctx, c.ID, c.LogPath) })
			if err != nil {
				supervise.Failed(ctx, "logs", err, "Rotating a container's log failed, will try again", "log", c.LogPath)
			}
		}
	})
}

// Rotate moves the log of a running container aside if it is too large, packs
// the ones before it and removes the oldest.
func (r *Rotator) Rotate(ctx context.Context, containerID, log string) error {
	info, err := os.Lstat(log)
	if err != nil || !info.Mode().IsRegular() || info.Size() < r.MaxBytes {
		return nil
	}
	old, err := rotated(log)
	if err != nil {
		return err
	}
	aside := log + "." + time.Now().Format(stamp)
	if slices.Contains(old, aside) || slices.Contains(old, aside+packed) {
		return nil // the last one was moved in the same second
	}
	remove, pack := sift(old, r.MaxFiles-2) // beside them there are the new log and the one moved aside now
	for _, path := range remove {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for _, path := range pack {
		if err := compress(ctx, path); err != nil {
			return fmt.Errorf("pack %s: %w", path, err)
		}
	}
	if err := os.Rename(log, aside); err != nil {
		return err
	}
	if err := r.Reopen(ctx, containerID); err != nil {
		return errors.Join(fmt.Errorf("reopen the log of container %s: %w", containerID, err), os.Rename(aside, log))
	}
	return nil
}

// Remove deletes a container's log and what was moved aside of it.
func Remove(log string) error {
	old, err := rotated(log)
	for _, path := range append(old, log) {
		if failed := os.Remove(path); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// rotated lists what was moved aside of a log, by name: the oldest first.
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

// sift decides about the logs moved aside earlier: which to remove, so that
// at most keep stay, and which of those that stay to pack. What an interrupted
// packing left is removed.
func sift(paths []string, keep int) (remove, pack []string) {
	var whole []string
	for _, path := range paths {
		if strings.HasSuffix(path, halfway) || slices.Contains(paths, path+packed) {
			remove = append(remove, path)
			continue
		}
		whole = append(whole, path)
	}
	surplus := max(len(whole)-max(keep, 0), 0)
	remove = append(remove, whole[:surplus]...)
	for _, path := range whole[surplus:] {
		if !strings.HasSuffix(path, packed) {
			pack = append(pack, path)
		}
	}
	return remove, pack
}

// sparse says whether most of a file is holes, which no runtime writes.
func sparse(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Blocks*512 < info.Size()/2
}

// compress replaces a file by its packed form, which is never seen half done.
// What cannot be a log is removed: packing it could take for ever.
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
	out, err := os.OpenFile(path+halfway, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path + halfway)
		}
	}()
	w := gzip.NewWriter(out)
	_, err = io.Copy(w, io.LimitReader(untilDone{ctx, in}, info.Size()))
	if err = errors.Join(err, w.Close(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+halfway, path+packed); err != nil {
		return err
	}
	return os.Remove(path)
}

// untilDone reads as long as ctx lives.
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
