// Package base is what the components share (upstream: k8s.io/component-base):
// how command lines are read and checked, and the HTTPS server through which a
// component shows its health, metrics and flags.
package base

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/pki"
)

// Set applies arguments in the form "name=value" or "name" (as --apiserver-arg
// and its like hand them through) to a component's flags.
func Set(component string, fs *pflag.FlagSet, arguments []string) error {
	for _, a := range arguments {
		name, value, given := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		flag := fs.Lookup(name)
		if was, removed := strings.CutSuffix(name, "-"); flag == nil && removed && !given && fs.Lookup(was) != nil {
			return BadArgument(component, a, "the cluster is new and has no such argument that could be taken away: leave it out")
		}
		if flag == nil {
			return unknownFlag(component, fs, a, name)
		}
		if !given {
			if flag.NoOptDefVal == "" {
				return BadArgument(component, a, "needs a value, as %s=VALUE", name)
			}
			value = flag.NoOptDefVal
		}
		if err := fs.Set(name, value); err != nil {
			return BadArgument(component, a, "%w", err)
		}
	}
	return CheckValues(fs)
}

// ArgumentError is an error in an argument that was handed through to a
// component.
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

func BadArgument(component, argument, format string, args ...any) error {
	return &ArgumentError{Component: component, Argument: argument, Err: fmt.Errorf(format, args...)}
}

// names lists the flags of a set.
func names(fs *pflag.FlagSet) string {
	var all []string
	fs.VisitAll(func(f *pflag.Flag) { all = append(all, f.Name) })
	return strings.Join(all, ", ")
}

// HostName is the name of a node: the one given, or else the host's.
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
func Remote(kubeconfig, component string) (client.Provider, error) {
	if kubeconfig == "" {
		return nil, fmt.Errorf("the %s needs --kubeconfig, a file that says where the API server is and who it is", component)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", kubeconfig, err)
	}
	config.UserAgent = "coracle/" + component
	return client.NewRemote(config)
}

// AuthorityOf is the authority by which a kubeconfig trusts the API server,
// read again when its file changes; nil if it names none.
func AuthorityOf(kubeconfig string) (func() *x509.CertPool, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", kubeconfig, err)
	}
	if config.CAFile != "" && len(config.CAData) == 0 {
		return pki.FollowAuthority(config.CAFile)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(config.CAData) {
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
