package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

const (
	// manifestsName is the directory of the user's manifests in a data directory.
	manifestsName = "manifests"
	// configManifestsName is the directory name of copies of the manifests of a
	// configuration file, which are Coracle's.
	configManifestsName = "config-manifests"
	// manifestsLock is the file there that a process locks before it changes the
	// copies. Its name is not that of a manifest.
	manifestsLock = ".lock"
)

// manifestDirectories returns the directories of a cluster's manifests: those of
// the configuration file before the user's.
func manifestDirectories(dataDir string) []string {
	return []string{filepath.Join(dataDir, configManifestsName), filepath.Join(dataDir, manifestsName)}
}

// MakeManifests makes the directory for the user's manifests in a data directory.
func MakeManifests(dataDir string) error {
	if err := os.Mkdir(filepath.Join(dataDir, manifestsName), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the directory of the manifests: %w", err)
	}
	return nil
}

// KeepManifests replaces the manifests of a configuration file in a data directory.
// It replaces each file in one step, and leaves one with the same content as it is.
// Of several processes that call KeepManifests at once, one after the other does it.
func KeepManifests(ctx context.Context, dataDir string, all []Manifest) error {
	return changeManifests(ctx, dataDir, func(dir string) error {
		names := map[string]bool{}
		for i, m := range all {
			name := manifestCopy(i, m)
			names[name] = true
			if err := keepFile(filepath.Join(dir, name), m.Content); err != nil {
				return err
			}
		}
		return removeOthers(dir, func(name string) bool { return names[name] })
	})
}

// WithdrawManifests removes the manifests of a configuration file from a data
// directory, except for those that are in all with the same content.
func WithdrawManifests(ctx context.Context, dataDir string, all []Manifest) error {
	return changeManifests(ctx, dataDir, func(dir string) error {
		same := map[string]bool{}
		for i, m := range all {
			name := manifestCopy(i, m)
			same[name] = holds(filepath.Join(dir, name), m.Content)
		}
		return removeOthers(dir, func(name string) bool { return same[name] })
	})
}

// manifestCopy returns the name of the copy of a manifest, given its position.
func manifestCopy(i int, m Manifest) string { return fmt.Sprintf("%04d-%s", i, m.Name) }

// manifestsWait bounds how long changeManifests waits for other processes.
const manifestsWait = time.Minute

// changeManifests calls change with the directory of the manifests of a
// configuration file, which it makes if it is missing, and locks.
func changeManifests(ctx context.Context, dataDir string, change func(dir string) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the manifests: %w", err)
		}
	}()
	dir := filepath.Join(dataDir, configManifestsName)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	lock, err := sharedfile.Acquire(ctx, filepath.Join(dir, manifestsLock), holderOf("", os.Getpid()), manifestsWait)
	if err != nil {
		return err
	}
	return errors.Join(change(dir), lock.Release())
}

// removeOthers removes the files in a directory of manifests that are not to be
// kept, and what killed processes have left.
func removeOthers(dir string, keep func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep(e.Name()) || e.Name() == manifestsLock {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
