package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

func downCommand() *cobra.Command {
	var name, dataDir string
	var yes bool
	cmd := &cobra.Command{
		Use:   "down [NAME]",
		Short: "Remove a cluster from this machine, with its data",
		Long: `Remove a cluster from this machine, with its data.

Nothing of the cluster is left: no process, container, mount, network interface,
rule or file. Files in its data directory that are not the cluster's stay. Down
asks first, unless --yes is given. One of several servers leaves the others by
coracle leave: after down, they still count it.`,
		Example: `  coracle down
  coracle down dev --yes`,
		GroupID: "cluster",
		RunE: func(cmd *cobra.Command, args []string) error {
			registry := host.NewRegistry(host.Root())
			if dataDir == "" {
				rec, err := registry.Find(name)
				if errors.Is(err, host.ErrNoCluster) {
					fmt.Printf("Nothing to remove: no cluster %s is on this machine.\n", name)
					return removeStart(cmd.Context(), registry, name)
				}
				if err != nil {
					return err
				}
				return downAlone(cmd.Context(), registry, rec, yes)
			}
			rec, err := registry.InDirectory(dataDir, warn)
			if err != nil {
				return err
			}
			if (cmd.Flags().Changed("name") || len(args) > 0) && rec.Name != "" && rec.Name != name {
				return fmt.Errorf("--data-dir=%s belongs to cluster %s, not to %s: give one of the two", dataDir, rec.Name, name)
			}
			if rec.Name == "" {
				fmt.Printf("Nothing to remove: no cluster on this machine has its data in %s.\n", dataDir)
				return host.RemoveStart(cmd.Context(), dataDir, false)
			}
			return downAlone(cmd.Context(), registry, rec, yes)
		},
	}
	nameArgument(cmd, &name)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask, for use in scripts")
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "remove the cluster with this data directory, whatever its name")
	return cmd
}

// removeStart removes what the first up of a cluster has left if it was killed
// before it wrote a record.
func removeStart(ctx context.Context, registry host.Registry, name string) error {
	if _, err := os.Lstat(filepath.Dir(registry.Folder())); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return registry.Locked(ctx, func() error {
		if _, err := registry.Get(name); !errors.Is(err, host.ErrNoCluster) {
			return err // another command has created it since
		}
		return errors.Join(registry.Delete(name), host.RemoveStart(ctx, registry.DataDir(name), true))
	})
}

// downAlone removes a cluster from this machine, and says what is left of it on its
// other servers.
func downAlone(ctx context.Context, registry host.Registry, rec host.Record, yes bool) error {
	left := leftBehind(ctx, rec)
	if err := down(ctx, registry, rec, yes); err != nil {
		return err
	}
	fmt.Print(left)
	return nil
}

// down removes a cluster from this machine.
func down(ctx context.Context, registry host.Registry, rec host.Record, yes bool) error {
	if err := errors.Join(rec.CheckOwn(), rec.RefuseService("disable --now"), host.RefuseForeignMounts(rec.DataDir)); err != nil {
		return err
	}
	if err := confirm(ctx, rec, yes); err != nil {
		return err
	}
	started := time.Now()
	lock, err := stopAndLock(ctx, rec)
	if err != nil {
		return err
	}
	var left []string
	removeData, vacate := func() error { return nil }, func() error { return nil }
	if lock != nil { // otherwise there is no directory; one that appears now is another cluster's
		defer func() { _ = lock.Release() }()
		removeData = func() (err error) {
			left, err = host.RemoveData(rec.DataDir)
			return err
		}
		vacate = func() error { return host.Vacate(rec.DataDir, rec.Directories()) }
	}
	if err := removeCluster(ctx, registry, rec, removeData, vacate); err != nil {
		return err
	}
	fmt.Printf("Cluster %s is gone after %.1f s: no process, mount, cgroup, network interface, nftables table or file of it is left.\n", rec.Name, time.Since(started).Seconds())
	if len(left) > 0 {
		fmt.Printf("Left in %s, because it is not the cluster's: %s\n", rec.DataDir, strings.Join(left, ", "))
	}
	return nil
}

// confirm asks the user whether the cluster's data may be removed. It returns
// an error if not, or if nobody can be asked.
func confirm(ctx context.Context, rec host.Record, yes bool) error {
	if _, err := os.Stat(rec.DataDir); yes || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	what := "all objects in " + rec.DataDir
	if rec.Node.Joined != nil {
		what = "its node in " + rec.DataDir
	}
	if len(rec.Etcd.Servers) > 0 {
		what = "its keys in " + rec.DataDir + ", not the objects in " + strings.Join(rec.Etcd.Servers, ", ") + ","
	}
	if rec.Nodes > 0 {
		what += ", its containers and their volumes"
	}
	if rec.Node.Joined == nil {
		what += " and context " + rec.Name + " of " + rec.Kubeconfig
	}
	if !isTerminal(os.Stdin) {
		return fmt.Errorf("cluster %s will be deleted permanently: %s; confirm with coracle down --name=%s --yes, or keep it with coracle stop --name=%s", rec.Name, what, rec.Name, rec.Name)
	}
	fmt.Printf("Cluster %s will be deleted permanently: %s. Delete it? [y/N] ", rec.Name, what)
	agreed, err := agrees(ctx)
	if err == nil && !agreed {
		err = fmt.Errorf("cluster %s was not changed", rec.Name)
	}
	return err
}

// agrees reports whether the user answers a question, which was printed, with yes.
func agrees(ctx context.Context) (bool, error) {
	answer, err := interruptible(ctx, func() (string, error) {
		return bufio.NewReader(io.LimitReader(os.Stdin, 100)).ReadString('\n')
	})
	if errors.Is(err, errInterrupted) {
		fmt.Println() // end the line of the question
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// stopTimeout is how long a cluster may take to end by itself before it is
// killed.
const stopTimeout = 20 * time.Second

// stopAndLock ends the processes of a cluster and locks its data directory,
// unless the directory is another cluster's. It returns no lock if the
// directory is gone.
func stopAndLock(ctx context.Context, rec host.Record) (*sharedfile.Lock, error) {
	if err := rec.CheckOwn(); err != nil {
		return nil, err
	}
	nodes, err := rec.StopNodesCommand(ctx, stopTimeout)
	defer func() { _ = release(nodes) }()
	if err := errors.Join(err, rec.Stop(ctx, stopTimeout)); err != nil {
		return nil, err
	}
	lock, err := host.LockData(ctx, rec.DataDir, rec.Name, time.Second)
	var held *sharedfile.HeldError
	if errors.As(err, &held) && (held.Holder.Cluster == rec.Name || held.Holder.Cluster == "") { // it is starting
		if err := host.StopHolder(ctx, held.Holder, stopTimeout); err != nil {
			return nil, err
		}
		lock, err = host.LockData(ctx, rec.DataDir, rec.Name, 2*time.Second)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the processes belong to the holder of the lock
		return nil, err
	}
	if err := processes.EndLeftover(rec.RunDirectory(), endTimeout); err != nil { // left by a supervisor that was killed
		return nil, errors.Join(err, release(lock))
	}
	return lock, nil
}

// release releases a lock, if there is one.
func release(lock *sharedfile.Lock) error {
	if lock == nil {
		return nil
	}
	return lock.Release()
}

// removeCluster removes everything of a cluster whose processes have ended, and
// whose data directory is locked if it exists. It calls vacate last: then a
// cluster of the same name may start.
func removeCluster(ctx context.Context, registry host.Registry, rec host.Record, removeData, vacate func() error) error {
	if err := host.CheckNotRunning(rec.Name, rec.RunDirectory()); err != nil {
		return err
	}
	if now, err := registry.Get(rec.Name); err == nil && now.DataDir == rec.DataDir {
		rec = now // with the cluster's later changes
	}
	if rec.Nodes > 0 {
		// Only what names things to remove: another setting that is invalid must
		// not keep the cluster from being removed.
		options := cluster.Options{
			Name: rec.Name, DataDir: rec.DataDir, ClusterCIDR: rec.ClusterCIDR, Node: &rec.Node,
			Progress: func(stage string) { fmt.Fprintln(os.Stderr, "coracle:", stage) },
		}
		if s, err := host.ReadSettings(rec.DataDir); err == nil {
			options.KubeletArgs = s.Options.KubeletArgs // where the kubelet's directory is
		}
		if err := cluster.Purge(ctx, options); err != nil {
			return err
		}
	}
	runDir := rec.RunDirectory()
	err := errors.Join(
		host.UnmountCluster(rec.DataDir, runDir),
		registry.Locked(ctx, func() error {
			if rec.Node.Joined != nil { // the kubeconfig is the node's, and goes with the data
				return nil
			}
			return host.RemoveContext(ctx, rec.Kubeconfig, rec.Name, rec.Merged)
		}),
	)
	if err != nil { // files below a mount must not be removed
		return err
	}
	if os.Geteuid() == 0 { // the nodes of all clusters, and so such directories, are root's
		if err := host.RemoveLogDirectories(rec.DataDir); err != nil {
			fmt.Fprintln(os.Stderr, "coracle: note: a directory for the logs of pods is left:", err)
		}
	}
	if err := removeData(); err != nil {
		return err
	}
	return registry.Locked(ctx, func() error {
		now, err := registry.Get(rec.Name)
		if err == nil && !now.Same(rec) {
			return vacate() // another cluster has the name by now
		}
		if err := host.RemoveRun(runDir); err != nil {
			return err
		}
		if err := registry.Delete(rec.Name); err != nil {
			return err
		}
		return vacate()
	})
}
