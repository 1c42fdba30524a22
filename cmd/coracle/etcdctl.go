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

	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/host"
)

// etcdctlCommand runs the bundled etcdctl on the etcd of a cluster.
func etcdctlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "etcdctl [--name=NAME] COMMAND [ARG...]",
		Short: "Run etcdctl on a cluster's own etcd",
		Long: `Run etcdctl on a cluster's own etcd, through its unix socket, which only the
user of the cluster may open. A --name in front selects the cluster (default
coracle). Everything after it is passed to etcdctl.`,
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
				return cmd.Help() // the cluster's bundle may be elsewhere
			}
			rec, err := host.NewRegistry(host.Root()).Find(name)
			if errors.Is(err, host.ErrNoCluster) {
				return codedError{fmt.Errorf("no cluster %s is on this machine: name it with coracle etcdctl --name=NAME", name), exitNoCluster}
			}
			if err != nil {
				return err
			}
			settings, err := host.ReadSettings(rec.DataDir)
			if err != nil {
				return err
			}
			if !rec.Running() && needsEmbedded(settings, rest) {
				return stoppedError(name)
			}
			return execEtcdctl(settings.Options.Node.BundleDir, rest, etcdctlEnvironment(settings, rest, os.Environ()))
		},
	}
}

// asksForHelp reports whether a command line of etcdctl asks for help only,
// which needs no cluster.
func asksForHelp(args []string) bool {
	return len(args) == 0 || args[0] == "help" || slices.Contains(args, "--help") || slices.Contains(args, "-h")
}

// needsEmbedded reports whether a command line of etcdctl asks the embedded
// etcd, which runs only with its cluster.
func needsEmbedded(s host.Settings, args []string) bool {
	return len(s.Options.Etcd.Servers) == 0 && !given(args, "endpoints") && !slices.Contains([]string{"version", "completion"}, args[0])
}

// given reports whether a command line has a flag.
func given(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == "--"+flag || strings.HasPrefix(a, "--"+flag+"=") })
}

// execEtcdctl replaces this process with the etcdctl of a bundle.
func execEtcdctl(bundle string, args, environment []string) error {
	program := filepath.Join(bundle, "bin", "etcdctl")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("the bundle has no etcdctl (%w): build it with make bundle", err)
	}
	return unix.Exec(program, append([]string{"etcdctl"}, args...), environment)
}

// clusterName splits the cluster's name off the front of a command line.
func clusterName(args []string) (name string, rest []string, err error) {
	if len(args) == 0 {
		return host.DefaultName, nil, nil
	}
	if name, ok := strings.CutPrefix(args[0], "--name="); ok {
		return name, args[1:], nil
	}
	if args[0] != "--name" {
		return host.DefaultName, args, nil
	}
	if len(args) == 1 {
		return "", nil, errors.New("--name: want the name of a cluster")
	}
	return args[1], args[2:], nil
}

// etcdctlEnvironment returns the environment for etcdctl. It has the etcd's
// endpoints and certificates, unless the command line has them.
func etcdctlEnvironment(s host.Settings, args, environment []string) []string {
	const prefix = "ETCDCTL_"
	where := map[string]string{"endpoints": "unix://" + host.EtcdSocket(s.RunDirectory())}
	if len(s.Options.Etcd.Servers) > 0 {
		where["endpoints"] = strings.Join(s.Options.Etcd.Servers, ",")
		for flag, argument := range map[string]string{"cacert": "etcd-cafile", "cert": "etcd-certfile", "key": "etcd-keyfile"} {
			where[flag] = flagvalue.Last(s.Options.APIServerArgs, argument)
		}
	}
	environment = slices.DeleteFunc(slices.Clone(environment), func(e string) bool {
		return slices.ContainsFunc([]string{"ENDPOINTS=", "CACERT=", "CERT=", "KEY="}, func(own string) bool { return strings.HasPrefix(e, prefix+own) })
	})
	for flag, value := range where {
		if value != "" && !given(args, flag) {
			environment = append(environment, prefix+strings.ToUpper(flag)+"="+value)
		}
	}
	return environment
}
