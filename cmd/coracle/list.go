package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/supervise"
)

func listCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the clusters on this machine",
		Long: `List the clusters on this machine, also those that are stopped.

With -o json, each cluster has the fields of coracle status -o json.`,
		Example: `  coracle list
  coracle list -o json`,
		GroupID: "cluster",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			all, err := host.NewRegistry(host.Root()).List(warn)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), output, statusesOf(cmd.Context(), all))
		},
	}
	addOutputFlag(cmd.Flags(), &output)
	return cmd
}

// clusterList is the output of list.
type clusterList []*clusterStatus

// statusesOf determines the status of each cluster, of all at the same time.
func statusesOf(ctx context.Context, all []host.Record) clusterList {
	statuses := make(clusterList, len(all))
	for i, err := range supervise.ForEach(len(all), func(i int) error {
		statuses[i] = statusOf(ctx, all[i])
		return nil
	}) {
		if err != nil {
			statuses[i], _ = newStatus(all[i]) // err says what is wrong
			statuses[i].setProblem(exitImpaired, err)
		}
	}
	return statuses
}

// WriteText writes one line for each cluster.
func (l clusterList) WriteText(out io.Writer) {
	if len(l) == 0 {
		_, _ = fmt.Fprintln(out, "No cluster is on this machine.")
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	defer func() { _ = w.Flush() }()
	row := func(name, state, server, nodes, pods, dir string) {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", name, state, server, nodes, pods, dir)
	}
	row("NAME", "STATUS", "API SERVER", "NODES", "PODS", "DATA")
	for _, c := range l {
		nodes, pods := "-", "-"
		if c.Version != "" {
			nodes, pods = fmt.Sprint(len(c.Nodes)), fmt.Sprint(c.Pods)
		}
		row(c.Name, c.state(), c.Server, nodes, pods, c.DataDir)
	}
}

// state returns one word for the status.
func (c *clusterStatus) state() string {
	switch {
	case !c.Running:
		return "Stopped"
	case c.err != nil:
		return "NotReady"
	}
	return "Ready"
}
