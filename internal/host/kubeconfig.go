package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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
	config, err := loadOrEmpty(file)
	if err != nil {
		return false, err
	}
	_, cluster := config.Clusters[name]
	_, user := config.AuthInfos[name]
	_, context := config.Contexts[name]
	return cluster || user || context, nil
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
	for missing := file; ; missing = filepath.Dir(missing) {
		if _, err := os.Lstat(missing); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		m.Made = slices.Insert(m.Made, 0, missing)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return m, err
	}
	return m, editKubeconfig(ctx, file, func(config *clientcmdapi.Config) {
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
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	empty := false
	err := editKubeconfig(ctx, file, func(config *clientcmdapi.Config) {
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
		_ = os.Remove(made) // a directory only when it is empty
	}
	return nil
}

// editKubeconfig changes a kubeconfig file under kubectl's lock. The file is
// replaced in one step and keeps its owner; a link to it stays a link.
func editKubeconfig(ctx context.Context, file string, edit func(*clientcmdapi.Config)) error {
	unlock, err := lockKubeconfig(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	real, err := RealPath(file)
	if err != nil {
		return err
	}
	config, err := loadOrEmpty(real)
	if err != nil {
		return err
	}
	edit(config)
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return replaceOwned(real, content)
}

// lockKubeconfig makes the file that kubectl has there while it writes.
func lockKubeconfig(ctx context.Context, file string) (unlock func(), err error) {
	path := file + ".lock"
	deadline := time.Now().Add(kubeconfigPatience)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			return func() { _ = os.Remove(path) }, f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s says that another program writes %s: remove it if none does", path, file)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(kubeconfigAgain):
		}
	}
}

// replaceOwned writes a file that only its owner can read, in one step. One
// that is there keeps its owner.
func replaceOwned(path string, data []byte) error {
	content := sharedfile.Content{Data: data, Mode: 0o600, Durable: true}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		st, ok := info.Sys().(*syscall.Stat_t)
		if !info.Mode().IsRegular() || !ok {
			return fmt.Errorf("%s is not a regular file: name another with --kubeconfig", path)
		}
		content.Owner = &sharedfile.Owner{UID: int(st.Uid), GID: int(st.Gid)}
	}
	return sharedfile.Replace(path, content)
}

// maxKubeconfig is the largest kubeconfig that is read.
const maxKubeconfig = 16 << 20

// loadOrEmpty reads a kubeconfig; one that is not there is empty. It does not
// wait for pipes and the like, since all clusters of the machine wait for it.
func loadOrEmpty(file string) (*clientcmdapi.Config, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKubeconfig {
		return nil, fmt.Errorf("%s is not a kubeconfig (%s, %d bytes): name another file with --kubeconfig", file, info.Mode().Type(), info.Size())
	}
	content, err := io.ReadAll(io.LimitReader(f, maxKubeconfig))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig (%w): mend it, or name another file with --kubeconfig", file, err)
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
