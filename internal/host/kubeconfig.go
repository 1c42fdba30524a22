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

// How long a kubectl that is writing is waited for, and how often it is looked
// at.
const (
	kubeconfigPatience = 5 * time.Second
	kubeconfigAgain    = 20 * time.Millisecond
)

// DefaultKubeconfig is the file that kubectl reads first when nothing else is
// said: the first of $KUBECONFIG, else ~/.kube/config.
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

// HasContext reports whether a kubeconfig file has something called name: a
// cluster, a user or a context.
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

// CheckKubeconfig reports why a kubeconfig file cannot be written. Nothing is
// made or changed.
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

// Merged is what MergeContext changed besides adding the context.
type Merged struct {
	Previous string   // the context that was current before; "" if it was ours
	Made     []string // the file and its directories, if they were missing, the outermost first
}

// Then is what this and a later merge of the same cluster changed together.
func (m Merged) Then(later Merged) Merged {
	if later.Previous != "" {
		m.Previous = later.Previous
	}
	if len(later.Made) > 0 {
		m.Made = later.Made
	}
	return m
}

// MergeContext puts the one context of ours (cluster, user and context all
// called name) into the kubeconfig file and makes it current. Nobody but the
// file's owner can read it then. The registry is locked.
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

// RemoveContext takes the context called name out of the kubeconfig file. If
// it was current, the previous one becomes current again where it still
// exists. What was made for it is removed when nothing else is in it. The
// registry is locked.
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
		return k.removeLeft()
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

// removeMade removes a file, or a directory that is empty, where it is still
// reached as it was made.
func removeMade(path string) {
	dir, _, err := openDirectory(filepath.Dir(path), false)
	defer dir.close()
	if err == nil {
		_ = dir.remove(filepath.Base(path)) // something is in it
	}
}

// kubeconfig is a kubeconfig file where it was found once: nobody can have it
// be another one from then on.
type kubeconfig struct {
	path  string // as it was given
	dir   *directory
	name  string     // in dir, for the lock, which goes by the given path
	real  *directory // where the file is, which a link may name; nil after an error
	base  string     // in real
	isNew bool
	made  []string // directories that were missing, and the file if it is new
}

// openKubeconfig finds a kubeconfig file, which may be missing. Its directory is
// made if that is asked for; else the error is fs.ErrNotExist, and the directory
// the last one on the way that is there.
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

// edit changes the file under kubectl's lock. It is replaced in one step and
// keeps its owner; a link to it stays a link.
func (k *kubeconfig) edit(ctx context.Context, edit func(*clientcmdapi.Config)) error {
	if err := k.removeLeft(); err != nil {
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

// kubectlLock is how the file ends that kubectl has beside a kubeconfig while
// it writes.
const kubectlLock = ".lock"

// maxHolder is how much is read of who has it, in bytes.
const maxHolder = 4096

// removeLeft removes what a process of Coracle's that was killed has left beside
// the file: kubectl's lock, and keys that were to be put into the file. There is
// no other one now, for the registry is locked.
func (k *kubeconfig) removeLeft() error {
	if k.abandoned() {
		if err := k.dir.remove(k.name + kubectlLock); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return sharedfile.RemoveUnfinished(k.real.at(k.base))
}

func (k *kubeconfig) lock(ctx context.Context) error {
	path := k.path + kubectlLock
	deadline := time.Now().Add(kubeconfigPatience)
	for {
		fd, err := unix.Openat(k.dir.fd, k.name+kubectlLock, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return k.tell(fd)
		}
		if !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s says that another program writes %s: remove it if none does", path, k.path)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(kubeconfigAgain):
		}
	}
}

// tell writes into the lock that this process has it. On a full disk it has the
// lock all the same.
func (k *kubeconfig) tell(fd int) error {
	if raw, err := json.Marshal(holderOf("", os.Getpid())); err == nil {
		_, _ = unix.Write(fd, raw)
	}
	return unix.Close(fd)
}

// abandoned reports whether the lock is that of a process of Coracle's that is
// gone. kubectl writes nothing into it.
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

// replace writes a file that only its owner can read, in one step. One that is
// there keeps its owner.
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
			err = errno // without the path, which is that of a descriptor
		}
		return fmt.Errorf("write %s: %w", k.path, err)
	}
	return nil
}

// maxKubeconfig is the largest kubeconfig that is read.
const maxKubeconfig = 16 << 20

// load reads the file; one that is not there is empty. It does not wait for
// pipes and the like, since all clusters of the machine wait for it.
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
		return nil, fmt.Errorf("%s is not a kubeconfig (%w): mend it, or name another file with --kubeconfig", k.path, err)
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
