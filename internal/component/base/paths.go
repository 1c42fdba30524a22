package base

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// PathFlags are the flags, of whichever component, that name a file or a
// directory.
var PathFlags = []string{
	"admission-control-config-file", "audit-log-path", "audit-policy-file", "audit-webhook-config-file", "authentication-config",
	"authentication-token-webhook-config-file", "authorization-config", "authorization-policy-file", "authorization-webhook-config-file",
	"cert-dir", "cert-file", "client-ca-file", "cluster-signing-cert-file", "cluster-signing-key-file", "config",
	"encryption-provider-config", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "key-file", "kubeconfig", "kubelet-certificate-authority",
	"kubelet-client-certificate", "kubelet-client-key", "oidc-ca-file", "peer-cert-file", "peer-key-file", "peer-trusted-ca-file",
	"pod-manifest-path", "proxy-client-cert-file", "proxy-client-key-file", "requestheader-client-ca-file", "resolv-conf", "root-ca-file",
	"root-dir", "service-account-key-file", "service-account-private-key-file", "service-account-signing-key-file", "tls-cert-file",
	"tls-private-key-file", "token-auth-file", "trusted-ca-file",
}

// Given checks arguments in the form that Set takes, and NAME-, which takes
// NAME away, before they are kept: each must name a flag of the component. The
// paths among the values become absolute.
func Given(component string, fs *pflag.FlagSet, arguments []string) ([]string, error) {
	given := slices.Clone(arguments)
	for i, a := range given {
		if name, removed := strings.CutSuffix(strings.TrimPrefix(a, "--"), "-"); removed && !strings.Contains(name, "=") {
			if fs.Lookup(name) == nil {
				return nil, unknownFlag(component, fs, a, name)
			}
			continue
		}
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if fs.Lookup(name) == nil {
			return nil, unknownFlag(component, fs, a, name)
		}
		absolute, err := absolutePath(name, value)
		if err != nil {
			return nil, BadArgument(component, a, "%w", err)
		}
		if absolute != value {
			given[i] = name + "=" + absolute
		}
	}
	return given, nil
}

// absolutePath makes the path in the value of a flag absolute. A value that is
// none, such as "-" for standard output, stays as it is.
func absolutePath(flag, value string) (string, error) {
	if flag == "tls-sni-cert-key" { // CERT,KEY or CERT,KEY:NAMES
		files, _, _ := strings.Cut(value, ":")
		var paths []string
		for file := range strings.SplitSeq(files, ",") {
			absolute, err := filepath.Abs(file)
			if err != nil {
				return "", err
			}
			paths = append(paths, absolute)
		}
		return strings.Join(paths, ",") + value[len(files):], nil
	}
	if !slices.Contains(PathFlags, flag) || value == "" || value == "-" {
		return value, nil
	}
	return filepath.Abs(value)
}

func unknownFlag(component string, fs *pflag.FlagSet, argument, name string) error {
	if component == "etcd" {
		return BadArgument(component, argument, "the embedded etcd has no flag --%s; it has %s", name, names(fs))
	}
	return BadArgument(component, argument, "the %s has no flag --%s; see coracle %s --help", component, name, component)
}
