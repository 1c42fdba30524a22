package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/internal/host"
)

func stopCommand() *cobra.Command {
	name := "coracle"
	cmd := &cobra.Command{
		Use:     "stop",
		Short:   "End a cluster's processes and keep its data and its containers; up starts it again as it was",
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := existing(host.NewRegistry(host.Root), name)
			if err != nil {
				return err
			}
			if err := rec.RefuseService("stop"); err != nil {
				return err
			}
			lock, err := stopAndLock(cmd.Context(), rec)
			if err != nil {
				return err
			}
			if lock != nil {
				_ = lock.Release()
			}
			fmt.Printf("Cluster %s is stopped; coracle up --name=%s starts it again.\n", name, name)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", name, "name of the cluster")
	return cmd
}
