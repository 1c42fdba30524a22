package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/host"
)

// upFlags are the flags of `coracle up`. Those that make the cluster what it is
// are kept as its settings; the others are about this one command.
type upFlags struct {
	told       host.Settings // as given on the command line
	dataDir    string
	foreground bool
	timeout    time.Duration
	given      []string // names of the flags that were given
}

func upCommand() *cobra.Command {
	f := &upFlags{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine and return when it is ready",
		Long: `Start a cluster on this machine and return when it is ready.

The flags are kept with the cluster's data: another up, after a crash or a
restart of the machine, needs only the name and starts it as it was. Flags that
are given then change what is kept, if that can change, and up shows what. An
argument of a component takes the place of that with the same name, and NAME-
takes it away: --apiserver-arg=anonymous-auth-`,
		Example: `  coracle up
  coracle up --name=dev --nodes=0 --apiserver-arg=anonymous-auth=false`,
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.Flags().Visit(func(flag *pflag.Flag) { f.given = append(f.given, flag.Name) })
			return up(cmd.Context(), f)
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func (f *upFlags) bind(fs *pflag.FlagSet) {
	s := &f.told
	fs.StringVar(&s.Name, "name", "coracle", "name of the cluster and of its kubeconfig context")
	fs.StringVar(&f.dataDir, "data-dir", "", "where the cluster keeps its data: a new or an empty directory (default "+host.Root+"/NAME)")
	fs.StringVar(&s.Kubeconfig, "kubeconfig", "", "file to write the context to (default: the first of $KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&s.Bundle, "bundle", "", "directory of the container runtime (default: bundle beside this binary)")
	fs.StringVar(&s.BindAddress, "bind-address", "0.0.0.0", "address the API server listens on")
	fs.IntVar(&s.Ports.Secure, "secure-port", 0, "port of the API server (default 6443, the next free one for further clusters)")
	fs.IntVar(&s.Nodes, "nodes", 1, "1 is a node on this machine, 0 a control plane alone")
	fs.StringVar(&s.NodeName, "node-name", "", "name of the node (default: the host's name)")
	fs.StringVar(&s.ServiceCIDR, "service-cidr", "", "addresses of Services (default 10.96.0.0/16, the next one for further clusters)")
	fs.StringVar(&s.ClusterCIDR, "cluster-cidr", "", "addresses of pods (default 10.244.0.0/16, the one before for further clusters)")
	fs.StringSliceVar(&s.EtcdServers, "etcd-servers", nil, "URLs of an external etcd; the default is an embedded one")
	fs.StringVar(&s.ContainerRuntimeEndpoint, "container-runtime-endpoint", "", "CRI runtime to use instead of the bundled containerd")
	fs.StringVar(&s.CNIConfDir, "cni-conf-dir", "", "where that runtime reads its CNI configuration, to put the pod network there; the default is a runtime with a pod network of its own")
	fs.BoolVar(&f.foreground, "foreground", false, "stay in the foreground and log to the terminal")
	fs.StringVar(&s.LogLevels, "v", "1", "log level 0..10, for all or for one component: 2,kubelet=5")
	fs.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait for the cluster to be ready")
	fs.StringArrayVar(&s.APIServerArgs, "apiserver-arg", nil, "flag for the API server, as anonymous-auth=false")
	fs.StringArrayVar(&s.ControllerManagerArgs, "controller-manager-arg", nil, "flag for the controller manager")
	fs.StringArrayVar(&s.SchedulerArgs, "scheduler-arg", nil, "flag for the scheduler")
	fs.StringArrayVar(&s.KubeletArgs, "kubelet-arg", nil, "flag for the kubelet")
	fs.StringArrayVar(&s.ProxyArgs, "proxy-arg", nil, "flag for the proxy")
	fs.StringArrayVar(&s.EtcdArgs, "etcd-arg", nil, "flag of etcd for the embedded one, as quota-backend-bytes=1073741824")
}

// check reports what is wrong with the flags themselves, and makes paths
// absolute.
func (f *upFlags) check() error {
	s := &f.told
	if s.Nodes < 0 || s.Nodes > 1 {
		return fmt.Errorf("--nodes=%d: want 1 for a node on this machine or 0 for a control plane alone", s.Nodes)
	}
	if errs := validation.IsDNS1123Label(s.Name); len(errs) > 0 {
		return fmt.Errorf("--name=%s: %s", s.Name, errs[0])
	}
	if errs := validation.IsDNS1123Subdomain(s.NodeName); s.NodeName != "" && len(errs) > 0 {
		return fmt.Errorf("--node-name=%s: %s", s.NodeName, errs[0])
	}
	if net.ParseIP(s.BindAddress) == nil {
		return fmt.Errorf("--bind-address=%s: want an IP address of this machine, or 0.0.0.0 for all", s.BindAddress)
	}
	if err := cluster.Check(cluster.Options{LogLevels: s.LogLevels}); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout=%v: want a time to wait, as 2m", f.timeout)
	}
	if s.Ports.Secure < 0 || s.Ports.Secure > 65535 {
		return fmt.Errorf("--secure-port=%d: want a port, 1 to 65535", s.Ports.Secure)
	}
	for flag, path := range map[string]*string{"data-dir": &f.dataDir, "bundle": &s.Bundle, "kubeconfig": &s.Kubeconfig} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("--%s=%s: %w", flag, *path, err)
		}
		*path = absolute
	}
	return f.checkArguments()
}

// checkArguments reports arguments that no component can take, and makes the
// paths in them absolute: the components run in another directory.
func (f *upFlags) checkArguments() error {
	s := &f.told
	var errs []error
	for name, arguments := range map[string]*[]string{
		"apiserver": &s.APIServerArgs, "controller-manager": &s.ControllerManagerArgs, "scheduler": &s.SchedulerArgs,
		"kubelet": &s.KubeletArgs, "proxy": &s.ProxyArgs, "etcd": &s.EtcdArgs,
	} {
		given, err := component.Given(name, *arguments)
		*arguments, errs = given, append(errs, err)
	}
	return errors.Join(errs...)
}

func up(ctx context.Context, f *upFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	registry := host.NewRegistry(host.Root)
	p, rec, err := f.claim(ctx, registry)
	if err != nil {
		return err
	}
	if p == nil {
		return f.alreadyUp(ctx, registry, rec)
	}
	defer func() { _ = p.claim.Lock.Release() }()
	if err = failedStart(p.makeReady()); err == nil {
		if f.foreground {
			err = failedStart(p.runHere())
		} else {
			err = upInBackground(ctx, f, p)
		}
	}
	var failed startError
	if p.claim.New() && !p.serves && errors.As(err, &failed) {
		return errors.Join(failed.cause, abandon(ctx, p.record, p.claim))
	}
	return err
}

// claim prepares the cluster, or returns the record of one that runs. While
// another command starts or ends the cluster it is waited for, no longer than
// --timeout.
func (f *upFlags) claim(ctx context.Context, registry host.Registry) (p *prepared, running host.Record, err error) {
	deadline := time.Now().Add(f.timeout)
	for told := false; ; told = true {
		rec, err := f.found(registry)
		if err != nil || rec.Running() {
			return nil, rec, err
		}
		err = registry.Locked(ctx, func() (err error) {
			p, err = f.prepare(ctx, registry)
			return err
		})
		var busy *host.BusyError
		if !errors.As(err, &busy) || time.Now().After(deadline) {
			return p, rec, err
		}
		if !told {
			fmt.Printf("Process %d is starting or ending cluster %s; waiting for it.\n", busy.PID, busy.Cluster)
		}
		select {
		case <-ctx.Done():
			return nil, rec, ctx.Err()
		case <-time.After(claimAgain):
		}
	}
}

// claimAgain is how often a cluster is looked at that another command has.
const claimAgain = 100 * time.Millisecond

// startError is why a cluster ended before it was ready. One that never was
// before leaves nothing behind then.
type startError struct{ cause error }

func (e startError) Error() string { return e.cause.Error() }
func (e startError) Unwrap() error { return e.cause }

// failedStart is a cluster's end as a startError; nil, an end that was asked
// for, stays nil.
func failedStart(cause error) error {
	if cause == nil {
		return nil
	}
	return startError{cause}
}

// reachable is the address that a client on this machine uses for a server
// that listens on bind.
func reachable(bind string) string {
	if ip := net.ParseIP(bind); ip == nil || ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return bind
}

func bundleBesideBinary() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(exe), "bundle"), nil
}
