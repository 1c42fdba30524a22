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
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

func downCommand() *cobra.Command {
	var name, dataDir string
	var yes bool
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Take a cluster away without a trace, its data included",
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			registry := host.NewRegistry(host.Root)
			if dataDir == "" {
				rec, err := find(registry, name)
				if errors.Is(err, host.ErrNoCluster) {
					fmt.Printf("Nothing to take down: no cluster %s is on this machine.\n", name)
					return removeStart(cmd.Context(), registry, name)
				}
				if err != nil {
					return err
				}
				return down(cmd.Context(), registry, rec, yes)
			}
			rec, err := inDirectory(registry, dataDir)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("name") && rec.Name != "" && rec.Name != name {
				return fmt.Errorf("--data-dir=%s belongs to cluster %s, not to %s: give one of the two flags", dataDir, rec.Name, name)
			}
			if rec.Name == "" {
				fmt.Printf("Nothing to take down: no cluster on this machine has its data in %s.\n", dataDir)
				return host.RemoveStart(cmd.Context(), dataDir, false)
			}
			return down(cmd.Context(), registry, rec, yes)
		},
	}
	cmd.Flags().StringVar(&name, "name", "coracle", "name of the cluster")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask, for scripts")
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "take away the cluster that has its data there, whatever its name")
	return cmd
}

// removeStart removes what a first up has left that was killed before anything
// knew of the cluster.
func removeStart(ctx context.Context, registry host.Registry, name string) error {
	if _, err := os.Lstat(filepath.Dir(registry.Folder())); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return registry.Locked(ctx, func() error {
		if _, err := registry.Get(name); !errors.Is(err, host.ErrNoCluster) {
			return err // it has come meanwhile
		}
		return errors.Join(registry.Delete(name), host.RemoveStart(ctx, registry.DataDir(name), true))
	})
}

func down(ctx context.Context, registry host.Registry, rec host.Record, yes bool) error {
	if err := errors.Join(rec.CheckOwn(), rec.RefuseService("disable --now"), host.RefuseForeignMounts(rec.DataDir)); err != nil {
		return err
	}
	if err := agreed(rec, yes); err != nil {
		return err
	}
	started := time.Now()
	lock, err := stopAndLock(ctx, rec)
	if err != nil {
		return err
	}
	var left []string
	removeData, vacate := func() error { return nil }, func() error { return nil }
	if lock != nil { // else there is no directory, and one that comes now is another cluster's
		defer func() { _ = lock.Release() }()
		removeData = func() (err error) {
			left, err = host.RemoveData(rec.DataDir)
			return err
		}
		vacate = func() error { return host.Vacate(rec.DataDir, rec.Directories()) }
	}
	if err := takeAway(ctx, registry, rec, removeData, vacate); err != nil {
		return err
	}
	fmt.Printf("Cluster %s is gone after %.1f s: no process, mount, cgroup, network interface, nftables table or file of it is left.\n", rec.Name, time.Since(started).Seconds())
	if len(left) > 0 {
		fmt.Printf("In %s stays what is not the cluster's: %s\n", rec.DataDir, strings.Join(left, ", "))
	}
	return nil
}

// agreed asks whether a cluster's data may go, and names them.
func agreed(rec host.Record, yes bool) error {
	if _, err := os.Stat(rec.DataDir); yes || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	what := "all objects in " + rec.DataDir
	if len(rec.EtcdServers) > 0 {
		what = "its keys in " + rec.DataDir + ", not the objects in " + strings.Join(rec.EtcdServers, ", ") + ","
	}
	if !rec.ControlOnly {
		what += ", its containers and their volumes"
	}
	what += " and context " + rec.Name + " of " + rec.Kubeconfig
	if !terminal(os.Stdin) {
		return fmt.Errorf("cluster %s goes for good with down: %s; say so with coracle down --name=%s --yes, or keep it with coracle stop --name=%s", rec.Name, what, rec.Name, rec.Name)
	}
	fmt.Printf("Cluster %s goes for good: %s. Take it down? [y/N] ", rec.Name, what)
	answer, err := bufio.NewReader(io.LimitReader(os.Stdin, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return fmt.Errorf("cluster %s was left as it is", rec.Name)
	}
	return nil
}

// terminal reports whether somebody can answer there.
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// stopPatience is how long a cluster may take to end by itself.
const stopPatience = 20 * time.Second

// stopAndLock ends the processes of a cluster and locks its data directory,
// unless that is another cluster's. It returns no lock if the directory is gone.
func stopAndLock(ctx context.Context, rec host.Record) (*sharedfile.Lock, error) {
	if err := rec.CheckOwn(); err != nil {
		return nil, err
	}
	if err := rec.Stop(ctx, stopPatience); err != nil {
		return nil, err
	}
	lock, err := host.LockData(ctx, rec.DataDir, rec.Name, time.Second)
	var held *sharedfile.HeldError
	if errors.As(err, &held) && (held.Holder.Cluster == rec.Name || held.Holder.Cluster == "") { // it was just starting
		if err := host.StopHolder(ctx, held.Holder, stopPatience); err != nil {
			return nil, err
		}
		lock, err = host.LockData(ctx, rec.DataDir, rec.Name, 2*time.Second)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the processes are those of whoever has the lock
		return nil, err
	}
	if err := processes.EndLeft(host.RunDir(rec.Name), endPatience); err != nil { // of a supervisor that did not end them
		return nil, errors.Join(err, release(lock))
	}
	return lock, nil
}

// release gives a lock up; nil is none.
func release(lock *sharedfile.Lock) error {
	if lock == nil {
		return nil
	}
	return lock.Release()
}

// takeAway removes everything of a cluster whose processes have ended, and
// whose data directory is locked, if it is there. vacate gives that up, last
// of all: from then on a cluster of the same name may start.
func takeAway(ctx context.Context, registry host.Registry, rec host.Record, removeData, vacate func() error) error {
	if err := refuseOwned(rec.Name); err != nil {
		return err
	}
	if now, err := registry.Get(rec.Name); err == nil && now.DataDir == rec.DataDir {
		rec = now // with what the cluster noted since
	}
	if !rec.ControlOnly {
		if err := cluster.Purge(ctx, cluster.Options{
			Name: rec.Name, DataDir: rec.DataDir, ClusterCIDR: rec.ClusterCIDR,
			Node: &cluster.NodeOptions{
				BundleDir: rec.BundleDir, CgroupRoot: rec.CgroupRoot, NFTable: rec.NFTable,
				ContainerRuntimeEndpoint: rec.ExternalCRI, CNIConfDir: rec.CNIConfDir,
			},
			Progress: func(stage string) { fmt.Fprintln(os.Stderr, "coracle:", stage) },
		}); err != nil {
			return err
		}
	}
	runDir := host.RunDir(rec.Name)
	err := errors.Join(
		host.UnmountOwn(rec.DataDir, runDir),
		registry.Locked(ctx, func() error { return host.RemoveContext(ctx, rec.Kubeconfig, rec.Name, rec.Merged) }),
	)
	if err != nil { // what is still mounted must not be removed
		return err
	}
	if err := removeData(); err != nil {
		return err
	}
	return registry.Locked(ctx, func() error {
		now, err := registry.Get(rec.Name)
		if err == nil && !now.Same(rec) {
			return vacate() // the name is another cluster's by now
		}
		if err := errors.Join(host.RemoveRun(runDir), registry.Delete(rec.Name)); err != nil {
			return err
		}
		return vacate()
	})
}
