package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

func startCommand() *cobra.Command {
	return startingCommand(&cobra.Command{
		Use:   "start [NAME]",
		Short: "Start a stopped cluster as it was",
		Long: `Start a stopped cluster as it was, with its data and settings, and return when it
is ready. Start waits for a cluster that runs already.

Start makes no cluster and changes none: that is what up does.`,
		Example: `  coracle start
  coracle start dev`,
	}, func(context.Context, host.Record) error { return nil })
}

func restartCommand() *cobra.Command {
	return startingCommand(&cobra.Command{
		Use:   "restart [NAME]",
		Short: "Stop a cluster and start it again as it was",
		Long: `Stop a cluster and start it again as it was, with its data and settings, and
return when it is ready. Its containers go on running. Restart starts a cluster
that is stopped.`,
		Example: `  coracle restart
  coracle restart dev`,
	}, stopToRestart)
}

// stopToRestart stops a cluster, unless it could not start again with its
// settings and data.
func stopToRestart(ctx context.Context, rec host.Record) error {
	if err := checkStarts(rec); err != nil {
		return fmt.Errorf("cluster %s could not start again, and was not stopped: %w", rec.Name, err)
	}
	return stop(ctx, rec, "restart")
}

// checkStarts returns an error if a cluster cannot start with its settings and
// data.
func checkStarts(rec host.Record) error {
	if err := rec.CheckData(); err != nil {
		return err
	}
	settings, err := host.ReadSettings(rec.DataDir)
	if errors.Is(err, host.ErrNoSettings) && !rec.Settled { // an earlier version stored none
		return nil
	}
	if err != nil {
		return err
	}
	bundle, err := bundleBesideBinary()
	if err != nil {
		return err
	}
	settings.Complete(settings.Slot, settings.Options.NodeName, bundle, settings.Kubeconfig)
	return errors.Join(host.CheckNames(settings), host.Preflight(settings.Nodes > 0), checkEncryption(settings), cluster.Check(settings.ClusterOptions()))
}

// startingCommand makes cmd start an existing cluster after it has called first.
func startingCommand(cmd *cobra.Command, first func(context.Context, host.Record) error) *cobra.Command {
	f := newUpFlags()
	f.existing = true
	cmd.GroupID = "cluster"
	nameArgument(cmd, &f.settings.Options.Name)
	cmd.Flags().DurationVar(&f.timeout, "timeout", f.timeout, "how long to wait for the cluster to be ready")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.timeout <= 0 {
			return fmt.Errorf("--timeout=%v: want a duration, such as 2m", f.timeout)
		}
		rec, err := mustFind(host.NewRegistry(host.Root()), f.settings.Options.Name)
		if err != nil {
			return err
		}
		if err := first(cmd.Context(), rec); err != nil {
			return err
		}
		return up(cmd.Context(), f)
	}
	return cmd
}
