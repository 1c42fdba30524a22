package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/internal/doctor"
	"github.com/coracle-io/coracle/internal/host"
)

// doctorCommand examines this machine.
func doctorCommand() *cobra.Command {
	var output string
	settings := newUpFlags().settings
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what on this machine keeps a cluster from working",
		Long: `Say what on this machine keeps a cluster from working, why, and what to do: its
kernel, control groups, OOM scores, ports, disk, memory, clock, DNS, proxies,
firewall, routes, limits, and what removed clusters have left. It changes nothing.

It exits with 1 if a cluster cannot work, which is marked as failed. Warnings are
about what works worse than it could, or may fail later.`,
		Example: `  coracle doctor
  coracle doctor --name=dev -o json`,
		GroupID: "cluster",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			report, err := doctor.Examine(host.NewRegistry(host.Root()), settings, warn)
			if err != nil {
				return err
			}
			if err := write(cmd.OutOrStdout(), output, report); err != nil {
				return err
			}
			if report.Failed() {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&settings.Options.Name, "name", host.DefaultName, "name of the cluster, also of one that is not there yet")
	cmd.Flags().StringVar(&settings.Options.DataDir, "data-dir", "", "directory for a new cluster's data (default "+host.Root()+"/NAME)")
	cmd.Flags().IntVar(&settings.Nodes, "nodes", 1, "how many nodes the cluster has on this machine, 0 for a control plane alone")
	addOutputFlag(cmd.Flags(), &output)
	return cmd
}

// examineTimeout bounds the examination after a failed start: one that hangs,
// as on a broken disk, is no reason for up to hang.
const examineTimeout = 10 * time.Second

// reportFailure writes why a cluster could not start or was not ready in time, and
// then what the doctor finds, and returns errReported. The failure comes first,
// because the examination uses the disk. An interrupted start is no reason to
// look for one; reportFailure returns failure then.
func reportFailure(ctx context.Context, out io.Writer, failure error, examine func() (doctor.Report, error)) error {
	if failure == nil || ctx.Err() != nil || errors.Is(failure, errInterrupted) {
		return failure
	}
	report(out, failure)
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	found, err := interruptible(ctx, examine)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		_, _ = fmt.Fprintf(out, "coracle doctor: the examination has not ended after %v, as when a disk hangs\n", examineTimeout)
	}
	if err != nil {
		return errReported // the failure itself says more
	}
	for _, f := range found.Problems() {
		_, _ = fmt.Fprintf(out, "coracle doctor: %s: %s: %s\n", f.Check, f.Cause, f.Advice)
	}
	return errReported
}
