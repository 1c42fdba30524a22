package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

func downCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Take a cluster away without a trace, its data included",
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return down(cmd.Context(), host.NewRegistry(host.Root), name)
		},
	}
	cmd.Flags().StringVar(&name, "name", "coracle", "name of the cluster")
	return cmd
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
			NFTable: rec.NFTable, ContainerRuntimeEndpoint: rec.ExternalCRI,
		}); err != nil {
			return err
		}
	}
	runDir := cluster.RunDir(rec.Name)
	err := errors.Join(
		host.UnmountBelow(rec.DataDir, runDir),
		host.RemoveContext(rec.Kubeconfig, rec.Name, rec.PreviousCtx),
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
