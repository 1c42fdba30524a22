package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/processes/heap"
	"github.com/coracle-io/coracle/internal/supervise"
)

// componentCommand returns a command that runs one component until it is
// stopped.
func componentCommand(name, short, example string, addFlags func(*pflag.FlagSet), run func(context.Context) error) *cobra.Command {
	verbosity := "0"
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Example: "  " + example,
		GroupID: "component",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			levels, err := logging.ParseLevels(verbosity)
			if err == nil {
				err = levels.Check(name, logging.Libraries)
			}
			if err != nil {
				return fmt.Errorf("--v: %w", err)
			}
			if err := flagvalue.Check(cmd.Flags()); err != nil {
				return err
			}
			log := logging.New(os.Stderr, levels)
			log.CaptureKlog(name)
			return supervise.IgnoreCanceled(supervise.RunOnce(log.Context(cmd.Context(), name), name, run))
		},
	}
	addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&verbosity, "v", "v", verbosity, "log level 0 to 10")
	return cmd
}

func apiServerCommand() *cobra.Command {
	f := apiserver.NewOptions()
	return componentCommand("apiserver", "Serve the Kubernetes API", "coracle apiserver --etcd-servers=https://10.0.0.1:2379 --service-cluster-ip-range=10.96.0.0/16", f.AddFlags, func(ctx context.Context) error {
		defer heap.Manage(ctx, heap.ControlPlaneShare)()
		return apiserver.Run(ctx, f)
	})
}

func controllerManagerCommand() *cobra.Command {
	m := component.NewControllerManager()
	return componentCommand("controller-manager", "Run the controllers", "coracle controller-manager --kubeconfig=/etc/kubernetes/controller-manager.conf", m.AddFlags, m.Run)
}

func kubeletCommand() *cobra.Command {
	k := component.NewKubelet()
	return componentCommand("kubelet", "Run the pods of a node", "coracle kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --container-runtime-endpoint=unix:///run/containerd/containerd.sock", k.AddFlags, func(ctx context.Context) error {
		score, err := k.OOMScoreAdj()
		if err != nil {
			return err
		}
		setOOMScore(ctx, score)
		defer heap.Manage(ctx, heap.NodeShare)()
		return k.Run(ctx)
	})
}

func proxyCommand() *cobra.Command {
	p := component.NewProxy()
	return componentCommand("proxy", "Make Services reachable on a node", "coracle proxy --kubeconfig=/etc/kubernetes/proxy.conf --cluster-cidr=10.244.0.0/16", p.AddFlags, func(ctx context.Context) error {
		score, err := p.OOMScoreAdj()
		if err != nil {
			return err
		}
		setOOMScore(ctx, score)
		return p.Run(ctx)
	})
}

func dnsCommand() *cobra.Command {
	d := component.NewDNS()
	return componentCommand("dns", "Serve the cluster's DNS", "coracle dns --kubeconfig=/etc/kubernetes/dns.conf --cluster-dns=10.96.0.10", d.AddFlags, d.Run)
}
