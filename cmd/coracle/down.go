package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

func downCommand() *cobra.Command {
	var name, dataDir string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Take a cluster away without a trace, its data included",
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			registry := host.NewRegistry(host.Root)
			if dataDir != "" {
				rec, err := inDirectory(registry, dataDir)
				if err != nil {
					return err
				}
				if cmd.Flags().Changed("name") && rec.Name != "" && rec.Name != name {
					return fmt.Errorf("--data-dir=%s belongs to cluster %s, not to %s: give one of the two flags", dataDir, rec.Name, name)
				}
				if name = rec.Name; name == "" {
					fmt.Printf("Nothing to take down: no cluster on this machine has its data in %s.\n", dataDir)
					return nil
				}
			}
			return down(cmd.Context(), registry, name)
		},
	}
	cmd.Flags().StringVar(&name, "name", "coracle", "name of the cluster")
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "take away the cluster that has its data there, whatever its name")
	return cmd
}

// inDirectory finds the cluster that has its data in a directory; a record
// without a name if there is none.
func inDirectory(registry host.Registry, dir string) (host.Record, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return host.Record{}, err
	}
	all, err := registry.List()
	if err != nil {
		return host.Record{}, err
	}
	for _, rec := range all {
		if rec.DataDir == dir {
			return rec, nil
		}
	}
	return host.Record{}, nil
}

func down(ctx context.Context, registry host.Registry, name string) error {
	rec, err := registry.Get(name)
	if errors.Is(err, host.ErrNoCluster) {
		fmt.Printf("Nothing to take down: no cluster %s is on this machine.\n", name)
		return nil
	}
	if err != nil {
		return err
	}
	started := time.Now()
	if err := rec.Stop(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := takeAway(ctx, registry, rec, false); err != nil {
		return err
	}
	fmt.Printf("Cluster %s is gone after %.1f s: no process, mount, cgroup, network interface, nftables table or file of it is left.\n", name, time.Since(started).Seconds())
	return nil
}

// takeAway removes everything of a cluster whose process has ended; keepData
// leaves its data directory alone.
func takeAway(ctx context.Context, registry host.Registry, rec host.Record, keepData bool) error {
	if !rec.ControlOnly {
		if err := cluster.Purge(ctx, cluster.Options{
			Name: rec.Name, DataDir: rec.DataDir, BundleDir: rec.BundleDir, ClusterCIDR: rec.ClusterCIDR, CgroupRoot: rec.CgroupRoot,
			NFTable: rec.NFTable, ContainerRuntimeEndpoint: rec.ExternalCRI, CNIConfDir: rec.CNIConfDir,
			Progress: func(stage string) { fmt.Fprintln(os.Stderr, "coracle:", stage) },
		}); err != nil {
			return err
		}
	}
	runDir := cluster.RunDir(rec.Name)
	err := errors.Join(
		host.UnmountBelow(rec.DataDir, runDir),
		registry.Locked(func() error { return host.RemoveContext(rec.Kubeconfig, rec.Name, rec.PreviousCtx) }),
	)
	if err != nil { // what is still mounted must not be removed
		return err
	}
	if !keepData {
		err = host.RemoveDir(rec.DataDir)
	}
	if err := errors.Join(err, host.RemoveDir(runDir)); err != nil {
		return err
	}
	return registry.Delete(rec.Name)
}
