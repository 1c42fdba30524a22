package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/version"
)

// upFlags are the flags of `coracle up`.
type upFlags struct {
	name, dataDir, kubeconfig, bundle           string
	bindAddress, serviceCIDR, clusterCIDR       string
	runtimeEndpoint, cniConfDir                 string
	nodeName, verbosity                         string
	securePort, nodes                           int
	foreground                                  bool
	etcdServers                                 []string
	apiserver, controllerManager, schedulerArgs []string
	kubelet, proxy, etcd                        []string
	timeout                                     time.Duration
}

func upCommand() *cobra.Command {
	f := &upFlags{}
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Start a cluster on this machine and return when it is ready",
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), f)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "coracle", "name of the cluster and of its kubeconfig context")
	fs.StringVar(&f.dataDir, "data-dir", "", "where the cluster keeps its data (default "+host.Root+"/NAME)")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "file to write the context to (default ~/.kube/config)")
	fs.StringVar(&f.bundle, "bundle", "", "directory of the container runtime (default: bundle beside this binary)")
	fs.StringVar(&f.bindAddress, "bind-address", "0.0.0.0", "address the API server listens on")
	fs.IntVar(&f.securePort, "secure-port", 0, "port of the API server (default 6443, the next free one for further clusters)")
	fs.IntVar(&f.nodes, "nodes", 1, "1 is a node on this machine, 0 a control plane alone")
	fs.StringVar(&f.nodeName, "node-name", "", "name of the node (default: the host's name)")
	fs.StringVar(&f.serviceCIDR, "service-cidr", "", "addresses of Services (default 10.96.0.0/16)")
	fs.StringVar(&f.clusterCIDR, "cluster-cidr", "", "addresses of pods (default 10.244.0.0/16)")
	fs.StringSliceVar(&f.etcdServers, "etcd-servers", nil, "URLs of an external etcd; the default is an embedded one")
	fs.StringVar(&f.runtimeEndpoint, "container-runtime-endpoint", "", "CRI runtime to use instead of the bundled containerd")
	fs.StringVar(&f.cniConfDir, "cni-conf-dir", "", "where that runtime reads its CNI configuration, to put the pod network there; the default is a runtime with a pod network of its own")
	fs.BoolVar(&f.foreground, "foreground", false, "stay in the foreground and log to the terminal")
	fs.StringVar(&f.verbosity, "v", "1", "log level 0..10, for all or for one component: 2,kubelet=5")
	fs.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait for the cluster to be ready")
	fs.StringArrayVar(&f.apiserver, "apiserver-arg", nil, "flag for the API server, as anonymous-auth=false")
	fs.StringArrayVar(&f.controllerManager, "controller-manager-arg", nil, "flag for the controller manager")
	fs.StringArrayVar(&f.schedulerArgs, "scheduler-arg", nil, "flag for the scheduler")
	fs.StringArrayVar(&f.kubelet, "kubelet-arg", nil, "flag for the kubelet")
	fs.StringArrayVar(&f.proxy, "proxy-arg", nil, "flag for the proxy")
	fs.StringArrayVar(&f.etcd, "etcd-arg", nil, "flag of etcd for the embedded one, as quota-backend-bytes=1073741824")
	return cmd
}

func up(ctx context.Context, f *upFlags) error {
	if f.nodes < 0 || f.nodes > 1 {
		return fmt.Errorf("--nodes=%d: want 1 for a node on this machine or 0 for a control plane alone", f.nodes)
	}
	if errs := validation.IsDNS1123Label(f.name); len(errs) > 0 {
		return fmt.Errorf("--name=%s: %s", f.name, errs[0])
	}
	if net.ParseIP(f.bindAddress) == nil {
		return fmt.Errorf("--bind-address=%s: want an IP address of this machine, or 0.0.0.0 for all", f.bindAddress)
	}
	levels, err := logging.ParseLevels(f.verbosity)
	if err != nil {
		return fmt.Errorf("--v: %w", err)
	}
	registry := host.NewRegistry(host.Root)
	rec, err := registry.Get(f.name)
	if err != nil && !errors.Is(err, host.ErrNoCluster) {
		return err
	}
	if rec.Running() && !f.startedInBackground() {
		fmt.Printf("Cluster %s is up already at %s.\n", rec.Name, rec.Server)
		return nil
	}
	first := errors.Is(err, host.ErrNoCluster)
	var options cluster.Options
	err = registry.Locked(func() (err error) {
		if options, rec, err = f.plan(registry, rec); err != nil {
			return err
		}
		return registry.Put(rec)
	})
	if err != nil {
		return err
	}
	kept := notEmpty(rec.DataDir)
	if f.foreground {
		options.LogLevels = levels
		err = runCluster(ctx, f, registry, rec, options)
	} else {
		err = upInBackground(ctx, f, rec)
	}
	var failed startError
	if first && errors.As(err, &failed) && !f.startedInBackground() {
		return errors.Join(failed.cause, takeAway(context.WithoutCancel(ctx), registry, rec, kept))
	}
	return err
}

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

// notEmpty reports whether something is in a directory, or in its place.
func notEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return len(entries) > 0 || (err != nil && !errors.Is(err, fs.ErrNotExist))
}

// plan works out what the cluster occupies and checks that it can.
func (f *upFlags) plan(registry host.Registry, rec host.Record) (cluster.Options, host.Record, error) {
	all, err := registry.List()
	if err != nil {
		return cluster.Options{}, rec, err
	}
	for _, path := range []*string{&f.dataDir, &f.bundle, &f.kubeconfig} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return cluster.Options{}, rec, err
		}
	}
	slot := host.FreeSlot(all, f.name, func(slot int) bool { return host.DefaultsOf(f.name, slot).InnerPortsFree() })
	if slot >= host.MaxSlots {
		return cluster.Options{}, rec, fmt.Errorf("no ports are left for another cluster (%d are on this machine): take one down first", len(all))
	}
	d := host.DefaultsOf(f.name, slot)
	o := cluster.Options{
		Name: f.name, DataDir: f.dataDir, BundleDir: f.bundle, BindAddress: f.bindAddress, NodeName: f.nodeName,
		ServiceCIDR: f.serviceCIDR, ClusterCIDR: f.clusterCIDR, EtcdServers: f.etcdServers,
		WithoutNode: f.nodes == 0, ContainerRuntimeEndpoint: f.runtimeEndpoint, CNIConfDir: f.cniConfDir,
		NFTable: d.NFTable, CgroupRoot: d.Cgroup,
		Ports: cluster.Ports{
			Secure: f.securePort, Etcd: d.EtcdPort, Manager: d.ControllerManagerPort, Scheduler: d.SchedulerPort,
			Kubelet: d.KubeletPort, KubeletHealthz: d.KubeletHealthz,
			ProxyHealthz: d.ProxyHealthz, ProxyMetrics: d.ProxyMetrics, DNS: d.DNS,
		},
		APIServerArgs: f.apiserver, ControllerManagerArgs: f.controllerManager, SchedulerArgs: f.schedulerArgs,
		KubeletArgs: f.kubelet, ProxyArgs: f.proxy, EtcdArgs: f.etcd,
	}
	if o.DataDir == "" {
		if o.DataDir = rec.DataDir; o.DataDir == "" {
			o.DataDir = registry.DataDir(f.name)
		}
	}
	if o.BundleDir == "" {
		if o.BundleDir, err = bundleBesideBinary(); err != nil {
			return o, rec, err
		}
	}
	if o.Ports.Secure == 0 {
		o.Ports.Secure = d.SecurePort
	}
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = d.ServiceCIDR
	}
	if o.ClusterCIDR == "" {
		o.ClusterCIDR = d.ClusterCIDR
	}
	if err := host.Preflight(!o.WithoutNode); err != nil {
		return o, rec, err
	}
	if err := cluster.Check(o); err != nil {
		return o, rec, err
	}
	if f.cniConfDir != "" && (f.runtimeEndpoint == "" || !filepath.IsAbs(f.cniConfDir)) {
		return o, rec, fmt.Errorf("--cni-conf-dir=%s: want an absolute path, and with it --container-runtime-endpoint", f.cniConfDir)
	}
	if f.runtimeEndpoint != "" && !o.WithoutNode {
		if err := host.RuntimeAnswers(f.runtimeEndpoint); err != nil {
			return o, rec, fmt.Errorf("--container-runtime-endpoint=%s: %w; start one there first, or leave the flag out for the bundled one", f.runtimeEndpoint, err)
		}
	}
	if err := host.PortsFree(f.bindAddress, map[string]int{"--secure-port": o.Ports.Secure}); err != nil {
		return o, rec, err
	}
	kubeconfig := f.kubeconfig
	if kubeconfig == "" {
		if kubeconfig = rec.Kubeconfig; kubeconfig == "" {
			kubeconfig = host.DefaultKubeconfig()
		}
	}
	return o, host.Record{
		Name: f.name, Slot: slot, DataDir: o.DataDir, Kubeconfig: kubeconfig, PreviousCtx: rec.PreviousCtx,
		Server:  "https://" + net.JoinHostPort(reachable(f.bindAddress), fmt.Sprint(o.Ports.Secure)),
		NFTable: d.NFTable, CgroupRoot: d.Cgroup, ExternalCRI: f.runtimeEndpoint, CNIConfDir: f.cniConfDir,
		ServiceCIDR: o.ServiceCIDR, ClusterCIDR: o.ClusterCIDR, EtcdServers: f.etcdServers, ControlOnly: o.WithoutNode,
		BundleDir: o.BundleDir, Started: time.Now().UTC(), BinaryVersion: version.Kubernetes,
	}, nil
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

// runCluster runs the cluster in this process until ctx ends.
func runCluster(ctx context.Context, f *upFlags, registry host.Registry, rec host.Record, o cluster.Options) error {
	report, done := f.reporter()
	defer done()
	log := os.Stderr
	o.Log, o.Progress = log, report
	c, err := cluster.New(o)
	if err != nil {
		return startError{err}
	}
	rec.PID = os.Getpid()
	if rec.PIDStart, err = host.StartTime(rec.PID); err != nil {
		return err
	}
	if err := registry.Put(rec); err != nil {
		return fmt.Errorf("record the cluster: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var pacing sync.WaitGroup
		pacing.Go(func() { paceGarbage(ctx) })
		err := c.Run(ctx)
		cancel()
		pacing.Wait()
		ended <- err
	}()
	select {
	case err := <-ended:
		return failedStart(err)
	case <-c.APIReady():
	}
	var previous string
	err = registry.Locked(func() (err error) {
		previous, err = host.MergeContext(rec.Kubeconfig, rec.Name, c.AdminKubeconfig(rec.Server))
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("write the kubeconfig: %w", err), stop(cancel, ended))
	}
	if previous != "" {
		rec.PreviousCtx = previous
	}
	if err := registry.Put(rec); err != nil {
		return errors.Join(err, stop(cancel, ended))
	}
	select {
	case err := <-ended:
		return failedStart(err)
	case <-c.Ready():
	}
	report(readyStage)
	done()
	return <-ended
}

// stop ends the cluster and waits for it.
func stop(cancel context.CancelFunc, ended <-chan error) error {
	cancel()
	return <-ended
}
