package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/host"
)

// etcdctlCommand is the bundled etcdctl on the etcd of a cluster.
func etcdctlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "etcdctl [--name=NAME] COMMAND [ARG...]",
		Short: "Run etcdctl on a cluster's own etcd",
		Long: `Run etcdctl on a cluster's own etcd, through its unix socket, which only the
user of the cluster may open. A --name in front is the cluster's (default
coracle); everything after it goes to etcdctl.`,
		Example: `  coracle etcdctl endpoint status
  coracle etcdctl --name=dev get --prefix --keys-only /registry/pods`,
		GroupID:            "cluster",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, rest, err := clusterName(args)
			if err != nil {
				return err
			}
			if asksForHelp(rest) {
				bundle, err := bundleBesideBinary()
				if err != nil {
					return err
				}
				if err := execEtcdctl(bundle, rest, os.Environ()); !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				return cmd.Help() // a cluster may have another bundle, which knows
			}
			rec, err := find(host.NewRegistry(host.Root), name)
			if errors.Is(err, host.ErrNoCluster) {
				return codedError{fmt.Errorf("no cluster %s is on this machine: say which with coracle etcdctl --name=NAME", name), exitNoCluster}
			}
			if err != nil {
				return err
			}
			settings, err := host.ReadSettings(rec.DataDir)
			if err != nil {
				return err
			}
			return execEtcdctl(settings.Bundle, rest, etcdctlEnvironment(settings, rest, os.Environ()))
		},
	}
}

// asksForHelp reports whether a command line of etcdctl only asks how it is
// used, for which no cluster is needed.
func asksForHelp(args []string) bool {
	return len(args) == 0 || args[0] == "help" || slices.Contains(args, "--help") || slices.Contains(args, "-h")
}

// execEtcdctl makes this process the etcdctl of a bundle.
func execEtcdctl(bundle string, args, environment []string) error {
	program := filepath.Join(bundle, "bin", "etcdctl")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("the bundle has no etcdctl (%w): build it with make bundle", err)
	}
	return unix.Exec(program, append([]string{"etcdctl"}, args...), environment)
}

// clusterName takes the cluster's name from the front of a command line.
func clusterName(args []string) (name string, rest []string, err error) {
	if len(args) == 0 {
		return "coracle", nil, nil
	}
	if name, ok := strings.CutPrefix(args[0], "--name="); ok {
		return name, args[1:], nil
	}
	if args[0] != "--name" {
		return "coracle", args, nil
	}
	if len(args) == 1 {
		return "", nil, errors.New("--name: want the name of a cluster")
	}
	return args[1], args[2:], nil
}

// etcdctlEnvironment says where the etcd is, unless the command line does.
func etcdctlEnvironment(s host.Settings, args, environment []string) []string {
	const prefix = "ETCDCTL_"
	where := map[string]string{"endpoints": "unix://" + host.EtcdSocket(s.Name)}
	if len(s.EtcdServers) > 0 {
		where["endpoints"] = strings.Join(s.EtcdServers, ",")
		for flag, argument := range map[string]string{"cacert": "etcd-cafile", "cert": "etcd-certfile", "key": "etcd-keyfile"} {
			where[flag] = lastArgument(s.APIServerArgs, argument)
		}
	}
	environment = slices.DeleteFunc(slices.Clone(environment), func(e string) bool {
		return slices.ContainsFunc([]string{"ENDPOINTS=", "CACERT=", "CERT=", "KEY="}, func(own string) bool { return strings.HasPrefix(e, prefix+own) })
	})
	for flag, value := range where {
		given := slices.ContainsFunc(args, func(a string) bool { return a == "--"+flag || strings.HasPrefix(a, "--"+flag+"=") })
		if value != "" && !given {
			environment = append(environment, prefix+strings.ToUpper(flag)+"="+value)
		}
	}
	return environment
}

// lastArgument is the value of the last argument of a name; "" if there is none.
func lastArgument(arguments []string, name string) string {
	for _, a := range slices.Backward(arguments) {
		if n, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "="); n == name {
			return value
		}
	}
	return ""
}
