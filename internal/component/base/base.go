// Package base has what the components share, as upstream's
// k8s.io/component-base: parsing and validation of command lines, and the HTTPS
// server of a component's health, metrics and flags.
package base

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/pki"
)

// Set applies arguments of the form "name=value" or "name", as given with
// --apiserver-arg, to a component's flags.
func Set(component string, fs *pflag.FlagSet, arguments []string) error {
	for _, argument := range arguments {
		a := flagvalue.ParseArgument(argument)
		flag := fs.Lookup(a.Name)
		switch {
		case flag == nil:
			return unknownFlag(component, fs, argument, a.Name)
		case a.Removes:
			return BadArgument(component, argument, "the cluster is new and has no argument to remove: leave it out")
		case a.HasValue:
		case flag.NoOptDefVal == "":
			return BadArgument(component, argument, "needs a value, such as %s=VALUE", a.Name)
		default:
			a.Value = flag.NoOptDefVal
		}
		if err := fs.Set(a.Name, a.Value); err != nil {
			return BadArgument(component, argument, "%w", err)
		}
	}
	return flagvalue.Check(fs)
}

// ArgumentError is an error in an argument of a component, as given with
// --COMPONENT-arg.
type ArgumentError struct {
	Component string // as in --COMPONENT-arg
	Argument  string // "" if it is about several
	Err       error
}

// Error implements error, in the terms of the command line.
func (e *ArgumentError) Error() string {
	flag := "--" + e.Component + "-arg"
	if e.Argument != "" {
		flag += "=" + e.Argument
	}
	return flag + ": " + e.Err.Error()
}

// Unwrap returns what is wrong with the argument.
func (e *ArgumentError) Unwrap() error { return e.Err }

// BadArgument returns an ArgumentError.
func BadArgument(component, argument, format string, args ...any) error {
	return &ArgumentError{Component: component, Argument: argument, Err: fmt.Errorf(format, args...)}
}

// names returns the names of the flags of a set.
func names(fs *pflag.FlagSet) string {
	var all []string
	fs.VisitAll(func(f *pflag.Flag) { all = append(all, f.Name) })
	return strings.Join(all, ", ")
}

// HostName returns the name of a node: the given one, or the host's if it is "".
func HostName(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host (give one with --hostname-override): %w", err)
	}
	return strings.ToLower(host), nil
}

// Remote returns a provider for the cluster and identity of a kubeconfig file.
// master, if it is not empty, is the URL of the API server instead of the one in
// the file. Without both, a component that runs in a pod uses the API server of its
// cluster and the pod's service account.
func Remote(master, kubeconfig, component string) (client.Provider, error) {
	config, err := restConfig(master, kubeconfig)
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, fmt.Errorf("the %s needs --kubeconfig, a file that says where the API server is and who it is", component)
	case err != nil && kubeconfig != "":
		return nil, fmt.Errorf("--kubeconfig=%s: %w", kubeconfig, err)
	case err != nil:
		return nil, err
	}
	config.UserAgent = "coracle/" + component
	return client.NewRemote(config)
}

func restConfig(master, kubeconfig string) (*rest.Config, error) {
	if master == "" && kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags(master, kubeconfig)
}

// AuthorityOf returns the authority of the API server in a kubeconfig, or nil if
// there is none. It is reloaded when its file changes. The credentials in the
// kubeconfig need not exist yet.
func AuthorityOf(kubeconfig string) (func() *x509.CertPool, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(config)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", kubeconfig, err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return nil, nil
	}
	api := config.Clusters[current.Cluster]
	if len(api.CertificateAuthorityData) == 0 && api.CertificateAuthority != "" {
		return pki.ReloadingAuthority(api.CertificateAuthority)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(api.CertificateAuthorityData) {
		return nil, nil
	}
	return func() *x509.CertPool { return pool }, nil
}

// ReadAuthorities reads the certificates of the PEM file that a flag names.
func ReadAuthorities(flag, file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("--%s=%s holds no PEM certificate", flag, file)
	}
	return pool, nil
}
