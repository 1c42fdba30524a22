package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/supervise"
)

// componentCommand is a command that runs one component until it is stopped.
func componentCommand(name, short string, addFlags func(*pflag.FlagSet), run func(context.Context) error) *cobra.Command {
	verbosity := "0"
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		GroupID: "component",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			levels, err := logging.ParseLevels(verbosity)
			if err == nil {
				err = levels.Check(name, logging.Libraries)
			}
			if err != nil {
				return fmt.Errorf("--v: %w", err)
			}
			if err := base.CheckValues(cmd.Flags()); err != nil {
				return err
			}
			log := logging.New(os.Stderr, levels)
			log.CaptureKlog()
			return asked(supervise.Alone(log.Context(cmd.Context(), name), name, run))
		},
	}
	addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&verbosity, "v", "v", verbosity, "log level 0..10")
	return cmd
}

func apiServerCommand() *cobra.Command {
	f := apiserver.NewFlags()
	return componentCommand("apiserver", "Serve the Kubernetes API", f.AddFlags, func(ctx context.Context) error {
		defer manageMemory(ctx, controlShare)()
		return apiserver.Run(ctx, f)
	})
}

func controllerManagerCommand() *cobra.Command {
	m := component.NewControllerManager()
	return componentCommand("controller-manager", "Run the controllers", m.AddFlags, m.Run)
}

func schedulerCommand() *cobra.Command {
	s := component.NewScheduler()
	return componentCommand("scheduler", "Assign pods to nodes", s.AddFlags, s.Run)
}

func kubeletCommand() *cobra.Command {
	k := component.NewKubelet()
	return componentCommand("kubelet", "Run the pods of a node", k.AddFlags, k.Run)
}

func proxyCommand() *cobra.Command {
	p := component.NewProxy()
	return componentCommand("proxy", "Make Services reachable on a node", p.AddFlags, p.Run)
}

func dnsCommand() *cobra.Command {
	d := component.NewDNS()
	return componentCommand("dns", "Serve the cluster's DNS", d.AddFlags, d.Run)
}
