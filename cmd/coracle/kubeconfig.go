package main

import (
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/host"
)

func kubeconfigCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "kubeconfig [NAME]",
		Short: "Print the kubeconfig of a cluster",
		Long: `Print the kubeconfig of a cluster's administrator. It contains a private key:
whoever has it may do everything in the cluster.

Up adds the same context to the kubeconfig of its user.`,
		Example: `  coracle kubeconfig > coracle.yaml
  coracle kubeconfig dev > dev.yaml`,
		GroupID: "cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := mustFind(host.NewRegistry(host.Root()), name)
			if err != nil {
				return err
			}
			config, err := adminContext(rec)
			if err != nil {
				return err
			}
			raw, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(raw)
			return err
		},
	}
	nameArgument(cmd, &name)
	return cmd
}
