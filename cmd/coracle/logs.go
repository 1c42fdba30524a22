package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/printable"
	"github.com/coracle-io/coracle/internal/processes"
)

func logsCommand() *cobra.Command {
	var (
		name   string
		follow bool
		since  time.Duration
		tail   = logging.All
	)
	cmd := &cobra.Command{
		Use:   "logs [COMPONENT...]",
		Short: "Print the log of a cluster's components",
		Long: `Print the log of a cluster's components, also of one that is stopped.

A line has the time, and then its component: apiserver, controller-manager,
scheduler, kubelet, proxy, dns, etcd or another one. A part of a component has a
name of its own, such as controller-manager/job-controller. A further node of the
machine is behind an @, as in kubelet@host-2: kubelet prints those of all nodes, and
@host-2 all components of that one. Without components, logs prints all lines.
kubectl logs prints the logs of pods.`,
		Example: `  coracle logs
  coracle logs scheduler kubelet -f
  coracle logs kubelet@host-2
  coracle logs --name=dev --since=10m --tail=100`,
		GroupID: "cluster",
		RunE: func(cmd *cobra.Command, components []string) error {
			if since < 0 {
				return fmt.Errorf("--since=%v: want how long ago, such as 10m", since)
			}
			if err := checkComponents(components); err != nil {
				return err
			}
			if tail < logging.All {
				return fmt.Errorf("--tail=%d: want the number of lines, or -1 for all", tail)
			}
			rec, err := mustFind(host.NewRegistry(host.Root()), name)
			if err != nil {
				return err
			}
			q := logging.Query{Components: components, Last: tail}
			if since > 0 {
				q.Since = time.Now().Add(-since)
			}
			out := printable.Writer{Writer: cmd.OutOrStdout()}
			if follow {
				return logging.Follow(cmd.Context(), host.LogFile(rec.DataDir), q, out)
			}
			return logging.Read(host.LogFile(rec.DataDir), q, out)
		},
	}
	nameFlag(cmd, cmd.Flags(), &name)
	cmd.Flags().BoolVarP(&follow, "follow", "f", follow, "go on printing lines as they are logged, until interrupted")
	cmd.Flags().DurationVar(&since, "since", since, "print only lines that are not older than this, such as 10m; 0 for all")
	cmd.Flags().IntVar(&tail, "tail", tail, "print only this many of the latest lines; -1 for all")
	return cmd
}

// checkComponents returns an error for a name that no component of a cluster logs
// with. Names of parts, such as controller-manager/job-controller, and of nodes, such
// as kubelet@host-2 or @host-2, are not checked.
func checkComponents(names []string) error {
	known := append(cluster.Components(), processes.Supervisor)
	for _, name := range names {
		component, node, ofNode := strings.Cut(name, "@")
		component, _, _ = strings.Cut(component, "/")
		if component == "" && ofNode && node != "" {
			continue
		}
		if !slices.Contains(known, component) {
			return fmt.Errorf("no component is called %q: want one of %s; kubectl logs prints the logs of pods", name, strings.Join(known, ", "))
		}
	}
	return nil
}
