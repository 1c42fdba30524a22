package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// How long, and at which interval, another program's lock is waited for.
const (
	kubeconfigTimeout = 5 * time.Second
	kubeconfigRetry   = 20 * time.Millisecond
)

// DefaultKubeconfig returns the file that kubectl reads first by default: the
// first of $KUBECONFIG, or ~/.kube/config.
func DefaultKubeconfig() string {
	for _, file := range filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)) {
		if absolute, err := filepath.Abs(file); file != "" && err == nil {
			return absolute
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return filepath.Join(home, ".kube", "config")
}

// HasContext reports whether a kubeconfig file has a cluster, a user or a
// context called name.
func HasContext(file, name string) (bool, error) {
	k, err := openKubeconfig(file, false)
	defer k.close()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	config, err := k.load()
	if err != nil {
		return false, err
	}
	_, cluster := config.Clusters[name]
	_, user := config.AuthInfos[name]
	_, context := config.Contexts[name]
	return cluster || user || context, nil
}

// CheckKubeconfig returns an error if a kubeconfig file cannot be written. It
// changes nothing.
func CheckKubeconfig(file string) error {
	k, err := openKubeconfig(file, false)
	defer k.close()
	if err == nil {
		_, err = k.load()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range []*directory{k.dir, k.real} {
		if dir == nil {
			continue
		}
		if err := unix.Faccessat(unix.AT_FDCWD, dir.at("."), unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			return fmt.Errorf("%s cannot be written (%s: %w): name another file with --kubeconfig", file, dir.path, err)
		}
	}
	return nil
}

// Merged says what MergeContext changed besides adding the context.
type Merged struct {
	Previous string   // the context that was current before; "" if it was the cluster's
	Made     []string // the file and directories that were missing, the outermost first
}

// Then returns the sum of this and a later merge of the same cluster.
func (m Merged) Then(later Merged) Merged {
	if later.Previous != "" {
		m.Previous = later.Previous
	}
	if len(later.Made) > 0 {
		m.Made = later.Made
	}
	return m
}

// MergeContext adds a cluster, a user and a context called name to the
// kubeconfig file, from the current context of ours, and makes it current. The
// file gets mode 0600 and keeps its owner. The registry must be locked.
func MergeContext(ctx context.Context, file, name string, ours *clientcmdapi.Config) (Merged, error) {
	var m Merged
	k, err := openKubeconfig(file, true)
	defer k.close()
	if m.Made = k.made; err != nil {
		return m, err
	}
	return m, k.edit(ctx, func(config *clientcmdapi.Config) {
		if config.CurrentContext != name {
			m.Previous = config.CurrentContext
		}
		current := ours.Contexts[ours.CurrentContext]
		config.Clusters[name] = ours.Clusters[current.Cluster]
		config.AuthInfos[name] = ours.AuthInfos[current.AuthInfo]
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: current.Namespace}
		config.CurrentContext = name
	})
}

// RemoveContext removes the context called name from the kubeconfig file, with
// its cluster and user. If it was current, the previous one becomes current if
// it still exists. RemoveContext removes an empty file and empty directories
// that MergeContext made. The registry must be locked.
func RemoveContext(ctx context.Context, file, name string, m Merged) error {
	k, err := openKubeconfig(file, false)
	defer k.close()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if k.isNew {
		return k.removeStale()
	}
	empty := false
	err = k.edit(ctx, func(config *clientcmdapi.Config) {
		delete(config.Clusters, name)
		delete(config.AuthInfos, name)
		delete(config.Contexts, name)
		if config.CurrentContext == name {
			config.CurrentContext = ""
			if _, ok := config.Contexts[m.Previous]; ok {
				config.CurrentContext = m.Previous
			}
		}
		empty = len(config.Clusters)+len(config.AuthInfos)+len(config.Contexts) == 0
	})
	if err != nil || !empty {
		return err
	}
	for _, made := range slices.Backward(m.Made) {
		removeMade(made)
	}
	return nil
}

// removeMade removes a file or an empty directory, if the path still leads to
// it.
func removeMade(path string) {
	dir, _, err := openDirectory(filepath.Dir(path), false)
	defer dir.close()
	if err == nil {
		_ = dir.remove(filepath.Base(path)) // something is in it
	}
}

// kubeconfig is a kubeconfig file, found once: other users cannot replace it by
// another file later.
type kubeconfig struct {
	path  string // as the caller named it
	dir   *directory
	name  string     // in dir; the lock is next to it
	real  *directory // the directory of the file itself, behind links; nil after an error
	base  string     // in real
	isNew bool
	made  []string // directories that were missing, and the file if it is new
}

// openKubeconfig finds a kubeconfig file, which may be missing. If missing is
// set, it makes the directory. Otherwise the error is fs.ErrNotExist, and dir
// the last directory of the path that exists.
func openKubeconfig(file string, missing bool) (*kubeconfig, error) {
	k := &kubeconfig{path: file, name: filepath.Base(file)}
	var err error
	if k.dir, k.made, err = openDirectory(filepath.Dir(file), missing); err != nil {
		return k, err
	}
	if k.real, k.base, err = k.dir.file(k.name); err != nil {
		return k, err
	}
	fd, _, err := k.real.lookup(k.base)
	if errors.Is(err, fs.ErrNotExist) {
		k.isNew, k.made = true, append(k.made, file)
		return k, nil
	}
	if err != nil {
		return k, err
	}
	return k, unix.Close(fd)
}

func (k *kubeconfig) close() {
	k.dir.close()
	if k.real != nil {
		k.real.close()
	}
}

// edit changes the file under kubectl's lock. It replaces the file in one step.
// The file keeps its owner, and a link to it stays.
func (k *kubeconfig) edit(ctx context.Context, edit func(*clientcmdapi.Config)) error {
	if err := k.removeStale(); err != nil {
		return err
	}
	if err := k.lock(ctx); err != nil {
		return err
	}
	defer func() { _ = k.dir.remove(k.name + kubectlLock) }()
	config, err := k.load()
	if err != nil {
		return err
	}
	edit(config)
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return k.replace(data)
}

// kubectlLock is the suffix of kubectl's lock file.
const kubectlLock = ".lock"

// maxHolder bounds how much of a lock file is read, in bytes.
const maxHolder = 4096

// removeStale removes what a killed Coracle process has left: kubectl's lock
// and an unfinished new file. No other Coracle process writes the file now,
// because the registry is locked.
func (k *kubeconfig) removeStale() error {
	if k.abandoned() {
		if err := k.dir.remove(k.name + kubectlLock); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return sharedfile.RemoveUnfinished(k.real.at(k.base))
}

func (k *kubeconfig) lock(ctx context.Context) error {
	path := k.path + kubectlLock
	// The wait is a sum of intervals, as in sharedfile.Acquire.
	for waited := time.Duration(0); ; waited += kubeconfigRetry {
		fd, err := unix.Openat(k.dir.fd, k.name+kubectlLock, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return k.writeHolder(fd)
		}
		if !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		if waited > kubeconfigTimeout {
			return fmt.Errorf("%s says that another program writes %s: remove it if none does", path, k.path)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(kubeconfigRetry):
		}
	}
}

// writeHolder writes this process into the lock file and closes it. Errors, as
// of a full disk, do not matter: the file's existence is the lock.
func (k *kubeconfig) writeHolder(fd int) error {
	if raw, err := json.Marshal(holderOf("", os.Getpid())); err == nil {
		_, _ = unix.Write(fd, raw)
	}
	return unix.Close(fd)
}

// abandoned reports whether the lock belongs to a Coracle process that has
// ended. kubectl writes nothing into it.
func (k *kubeconfig) abandoned() bool {
	fd, err := unix.Openat(k.dir.fd, k.name+kubectlLock, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var h sharedfile.Holder
	raw := make([]byte, maxHolder)
	n, err := unix.Read(fd, raw)
	if err != nil || json.Unmarshal(raw[:n], &h) != nil || h.PID <= 0 || h.PIDStart == 0 {
		return false
	}
	return !processes.Process{PID: h.PID, Start: h.PIDStart}.Running()
}

// replace replaces the file in one step, with mode 0600. An existing file keeps
// its owner.
func (k *kubeconfig) replace(data []byte) error {
	content := sharedfile.Content{Data: data, Mode: 0o600, Durable: true}
	var st unix.Stat_t
	switch err := unix.Fstatat(k.real.fd, k.base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return &os.PathError{Op: "stat", Path: k.path, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s is not a regular file: name another with --kubeconfig", k.path)
	default:
		content.Owner = &sharedfile.Owner{UID: int(st.Uid), GID: int(st.Gid)}
	}
	if err := sharedfile.Replace(k.real.at(k.base), content); err != nil {
		if errno := unix.Errno(0); errors.As(err, &errno) {
			err = errno // without the path, which names a file descriptor
		}
		return fmt.Errorf("write %s: %w", k.path, err)
	}
	return nil
}

// maxKubeconfig bounds a kubeconfig, in bytes.
const maxKubeconfig = 16 << 20

// load reads the file; a missing one is empty. It does not block on pipes and
// devices, because callers may hold the lock of the registry.
func (k *kubeconfig) load() (*clientcmdapi.Config, error) {
	fd, err := unix.Openat(k.real.fd, k.base, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: k.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), k.path)
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKubeconfig {
		return nil, fmt.Errorf("%s is not a kubeconfig (%s, %d bytes): name another file with --kubeconfig", k.path, info.Mode().Type(), info.Size())
	}
	content, err := io.ReadAll(io.LimitReader(f, maxKubeconfig))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig (%w): repair it, or name another file with --kubeconfig", k.path, err)
	}
	empty := clientcmdapi.NewConfig()
	if config.Clusters == nil {
		config.Clusters = empty.Clusters
	}
	if config.AuthInfos == nil {
		config.AuthInfos = empty.AuthInfos
	}
	if config.Contexts == nil {
		config.Contexts = empty.Contexts
	}
	return config, nil
}
