package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// DefaultKubeconfig is the file that kubectl reads when nothing else is said.
func DefaultKubeconfig() string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return filepath.Join(home, ".kube", "config")
}

// MergeContext puts the one context of ours (cluster, user and context all
// called name) into the kubeconfig file and makes it current. It returns the
// context that was current before.
func MergeContext(file, name string, ours *clientcmdapi.Config) (previous string, err error) {
	config, err := loadOrEmpty(file)
	if err != nil {
		return "", err
	}
	if config.CurrentContext != name {
		previous = config.CurrentContext
	}
	current := ours.Contexts[ours.CurrentContext]
	config.Clusters[name] = ours.Clusters[current.Cluster]
	config.AuthInfos[name] = ours.AuthInfos[current.AuthInfo]
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: current.Namespace}
	config.CurrentContext = name
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return "", err
	}
	return previous, clientcmd.WriteToFile(*config, file)
}

// RemoveContext takes the context called name out of the kubeconfig file. If
// it was current, previous becomes current again where it still exists. A
// file that holds nothing else is removed.
func RemoveContext(file, name, previous string) error {
	config, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	delete(config.Clusters, name)
	delete(config.AuthInfos, name)
	delete(config.Contexts, name)
	if config.CurrentContext == name {
		config.CurrentContext = ""
		if _, ok := config.Contexts[previous]; ok {
			config.CurrentContext = previous
		}
	}
	if len(config.Clusters)+len(config.AuthInfos)+len(config.Contexts) == 0 {
		if err := os.Remove(file); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(file)) // only when empty
		return nil
	}
	return clientcmd.WriteToFile(*config, file)
}

func loadOrEmpty(file string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig (%w): mend it, or name another file with --kubeconfig", file, err)
	}
	return config, nil
}
