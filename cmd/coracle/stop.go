package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/internal/host"
)

func stopCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "stop [NAME]",
		Short: "Stop a cluster and keep its data and containers",
		Long: `Stop a cluster and keep its data and containers.

Its containers go on running. Start starts the cluster again as it was.`,
		Example: `  coracle stop
  coracle stop dev`,
		GroupID: "cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := mustFind(host.NewRegistry(host.Root()), name)
			if err != nil {
				return err
			}
			if err := stop(cmd.Context(), rec, "stop"); err != nil {
				return err
			}
			fmt.Printf("Cluster %s is stopped; coracle start %s starts it again.\n", name, name)
			return nil
		},
	}
	nameArgument(cmd, &name)
	return cmd
}

// stop ends the processes of a cluster and keeps its data and containers. A
// cluster that is stopped stays so. verb is systemctl's command for what is
// wanted.
func stop(ctx context.Context, rec host.Record, verb string) error {
	if err := rec.RefuseService(verb); err != nil {
		return err
	}
	lock, err := stopAndLock(ctx, rec)
	if err != nil {
		return err
	}
	return release(lock)
}
