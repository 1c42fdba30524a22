package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// newNode has the flags of coracle node add.
type newNode struct {
	name         string // "" for the one that follows from its number
	labels       map[string]string
	taints       []string
	zone, region string
	timeout      time.Duration
}

func addNodeCommand(clusterName *string) *cobra.Command {
	n := &newNode{timeout: 2 * time.Minute}
	cmd := &cobra.Command{
		Use:     "add [NODE]",
		Aliases: []string{"create"},
		Short:   "Add a node to a running cluster, and return when it is ready",
		Long: `Add a node to a running cluster, and return when it is ready.

The node is called like the machine with its number, such as host-4, unless a name
is given. With the name of a node that is there, the command waits until that one
is ready. Without a name it first finishes what an interrupted command has begun.
The first further node of a cluster restarts the cluster's processes, which takes a
moment; its containers run on.`,
		Example: `  coracle node add
  coracle node add gpu --labels=pool=gpu --taints=gpu=yes:NoSchedule --zone=b`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				n.name = args[0]
			}
			node, err := n.configuration()
			if err != nil {
				return err
			}
			return changeNodes(cmd.Context(), *clusterName, n.timeout, func(ctx context.Context, rec host.Record) error {
				return n.add(ctx, cmd.OutOrStdout(), rec, node)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringToStringVar(&n.labels, "labels", nil, "labels with which the node registers, such as pool=blue")
	fs.StringSliceVar(&n.taints, "taints", nil, "taints with which the node registers, such as dedicated=gpu:NoSchedule")
	fs.StringVar(&n.zone, "zone", "", "zone of the node, its label "+v1.LabelTopologyZone)
	fs.StringVar(&n.region, "region", "", "region of the node, its label "+v1.LabelTopologyRegion)
	fs.DurationVar(&n.timeout, "timeout", n.timeout, "how long to wait for the node to be ready")
	return cmd
}

// configuration returns how the flags configure the node.
func (n *newNode) configuration() (cluster.EachNode, error) {
	f := &host.NodeFields{}
	errs := []error{f.SetLabels("--labels", n.labels), f.SetTaints("--taints", n.taints)}
	if n.name != "" {
		errs = append(errs, f.SetName("name of the node", n.name))
	}
	if n.zone != "" {
		errs = append(errs, f.SetTopology("--zone", v1.LabelTopologyZone, n.zone))
	}
	if n.region != "" {
		errs = append(errs, f.SetTopology("--region", v1.LabelTopologyRegion, n.region))
	}
	return f.Node(), errors.Join(errs...)
}

// add adds the node to a cluster, and waits until it is ready. Before anything of the
// node is made, the settings and the record have it.
func (n *newNode) add(ctx context.Context, out io.Writer, rec host.Record, node cluster.EachNode) error {
	started, number := time.Now(), 0
	settings, err := changeSettings(ctx, rec.Name, func(s *host.Settings) (err error) {
		before := len(s.NodeNumbers())
		if number, err = place(s, node); err != nil || len(s.NodeNumbers()) == before {
			return err
		}
		return checkNewNode(ctx, rec, *s, number)
	})
	if err != nil {
		return err
	}
	o := settings.ClusterOptions()
	name := o.NameOfNode(number)
	if err = cluster.Prepare(o); err == nil {
		err = runNodes(rec, settings)
	}
	if err != nil {
		return fmt.Errorf("add node %s: %w", name, err)
	}
	err = awaitProcesses(ctx, rec, func(all map[string]processes.Process) bool {
		return all[processes.ControlPlane].Ready && all[processes.Node].Ready && all[processes.NodeProcess(number)].Ready
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("node %s is not ready after %v; it keeps trying: wait again with coracle node add --name=%s %s, or remove it with coracle node remove --name=%s %s", name, n.timeout, rec.Name, name, rec.Name, name)
		return errors.Join(append([]error{err}, awaited(rec)...)...)
	}
	if err != nil {
		return err
	}
	if _, err := changeSettings(ctx, rec.Name, func(s *host.Settings) error {
		s.SetNodeState(number, cluster.NodePresent)
		return nil
	}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Node %s is ready after %.1f s.\n", name, time.Since(started).Seconds())
	return err
}

// place makes a node one of the settings, unless it is there, and returns its number.
// Without a name, that is a node whose addition was interrupted, if there is one.
func place(s *host.Settings, node cluster.EachNode) (number int, err error) {
	name := s.Options.Name
	if s.Nodes == 0 {
		return 0, fmt.Errorf("cluster %s is a control plane alone: stop it, and start it with coracle up --name=%s --nodes=1", name, name)
	}
	if node.Name != "" {
		number, state, ok := s.FindNode(node.Name)
		switch {
		case ok && state == cluster.NodeLeaving:
			return 0, fmt.Errorf("the removal of node %s was interrupted: finish it with coracle node remove --name=%s %s", node.Name, name, node.Name)
		case ok:
			return number, nil
		}
	} else if i := slices.IndexFunc(s.NodeNumbers(), func(number int) bool { return s.StateOfNode(number) == cluster.NodeAdding }); i >= 0 {
		return s.NodeNumbers()[i], nil
	}
	node.State = cluster.NodeAdding
	return s.AddNode(node), nil
}

// checkNewNode returns an error if a cluster with these settings, in which the node of
// that number is new, could not run.
func checkNewNode(ctx context.Context, rec host.Record, s host.Settings, number int) error {
	o := s.ClusterOptions()
	if err := errors.Join(host.CheckNames(s), cluster.Check(o)); err != nil {
		return err
	}
	all, err := host.NewRegistry(host.Root()).List(warn)
	if err != nil {
		return err
	}
	_, others := s.FormerHolders(all)
	if err := host.CheckRanges(s, others); err != nil {
		return err
	}
	client, err := adminClient(rec, answerTimeout) // others wait for the registry
	if err != nil {
		return err
	}
	name := o.NameOfNode(number)
	switch _, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("ask the API server of cluster %s: %w", rec.Name, err)
	}
	return fmt.Errorf("cluster %s has a node %s that is not of this machine: give another name", rec.Name, name)
}
