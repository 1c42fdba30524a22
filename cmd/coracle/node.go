package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/supervise"
)

// nodeCommand has commands for the nodes of a cluster on this machine.
func nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "List, add and remove the nodes of a cluster on this machine",
		Long: `List, add and remove the nodes of a cluster on this machine, while it runs.

The first node is the machine itself. Further ones have network namespaces and
container runtimes of their own. Each command can be repeated after it was
interrupted.`,
		Example: `  coracle node list
  coracle node add`,
		GroupID: "cluster",
		Args:    wantSubcommand("list", "add", "remove"),
		Run:     func(*cobra.Command, []string) {},
	}
	name := ""
	nameFlag(cmd, cmd.PersistentFlags(), &name)
	cmd.AddCommand(listNodesCommand(&name), addNodeCommand(&name), removeNodeCommand(&name))
	return cmd
}

func listNodesCommand(name *string) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the nodes of a cluster on this machine",
		Long: `List the nodes of a cluster on this machine, also those of a cluster that is stopped
and those whose removal was interrupted. coracle kubectl get nodes lists nodes
elsewhere as well.`,
		Example: `  coracle node list
  coracle node list -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			rec, err := mustFind(host.NewRegistry(host.Root()), *name)
			if err != nil {
				return err
			}
			nodes, err := nodesOf(cmd.Context(), rec)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), output, nodes)
		},
	}
	addOutputFlag(cmd.Flags(), &output)
	return cmd
}

// nodeStatus is a node of this machine. Its JSON form is the output of node list:
// docs/components.md describes it.
type nodeStatus struct {
	Name   string `json:"name"`
	Number int    `json:"number"` // from 1, which is the machine
	// Status is Ready, why it is not, or one of the words below.
	Status  string            `json:"status"`
	Address string            `json:"address,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Taints  []string          `json:"taints,omitempty"`
}

// Words for the status of a node, besides those of readiness.
const (
	nodeStopped       = "Stopped"       // with its cluster
	nodeRemoving      = "Removing"      // its removal was begun and not finished
	nodeNotRegistered = "NotRegistered" // its kubelet has not registered it yet
)

// nodeList is the output of node list.
type nodeList []nodeStatus

// WriteText writes one line for each node.
func (l nodeList) WriteText(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	defer func() { _ = w.Flush() }()
	_, _ = fmt.Fprintln(w, "NAME\tSTATUS\tADDRESS")
	for _, n := range l {
		status, _, _ := strings.Cut(n.Status, ":")
		address := n.Address
		if address == "" {
			address = "-"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", n.Name, status, address)
	}
}

// nodesOf returns the nodes of a cluster on this machine.
func nodesOf(ctx context.Context, rec host.Record) (nodeList, error) {
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return nil, err
	}
	registered := map[string]*v1.Node{}
	if rec.Running() {
		client, err := adminClient(rec, answerTimeout)
		if err != nil {
			return nil, err
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("ask the API server of cluster %s: %w", rec.Name, err)
		}
		for i := range nodes.Items {
			registered[nodes.Items[i].Name] = &nodes.Items[i]
		}
	}
	return listNodes(settings, rec.Running(), registered), nil
}

// listNodes returns the nodes that the settings of a cluster have, with what their
// objects say.
func listNodes(settings host.Settings, running bool, registered map[string]*v1.Node) nodeList {
	o, list := settings.ClusterOptions(), nodeList{}
	for _, number := range settings.NodesLeft() {
		n := nodeStatus{Name: o.NameOfNode(number), Number: number}
		if given := flagvalue.Last(o.KubeletArgs, "hostname-override"); given != "" {
			n.Name = given // several nodes do not have it
		}
		node := registered[n.Name]
		if node != nil {
			n.Labels = node.Labels
			for _, t := range node.Spec.Taints {
				n.Taints = append(n.Taints, t.ToString())
			}
			for _, a := range node.Status.Addresses {
				if a.Type == v1.NodeInternalIP && n.Address == "" {
					n.Address = a.Address
				}
			}
		}
		switch {
		case settings.StateOfNode(number) == cluster.NodeLeaving:
			n.Status = nodeRemoving
		case !running:
			n.Status = nodeStopped
		case node == nil:
			n.Status = nodeNotRegistered
		default:
			n.Status = readiness(node)
		}
		list = append(list, n)
	}
	return list
}

// adminClient returns a client with the rights of the cluster's admin, whose requests
// end after timeout.
func adminClient(rec host.Record, timeout time.Duration) (kubernetes.Interface, error) {
	config, _, err := adminOf(rec)
	if err != nil {
		return nil, err
	}
	config.Timeout = timeout
	return kubernetes.NewForConfig(config)
}

// nodePoll is the interval at which commands look at the processes of nodes.
const nodePoll = 100 * time.Millisecond

// changeNodes calls do with the record of a running cluster whose nodes no other
// command changes meanwhile. The context of do ends after timeout.
func changeNodes(ctx context.Context, name string, timeout time.Duration, do func(context.Context, host.Record) error) (err error) {
	if timeout <= 0 {
		return fmt.Errorf("--timeout=%v: want a duration, such as 2m", timeout)
	}
	registry := host.NewRegistry(host.Root())
	rec, err := findRunning(registry, name)
	if err != nil {
		return err
	}
	lock, err := rec.LockNodes(ctx, timeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if rec, err = findRunning(registry, name); err != nil { // it may have ended meanwhile
		return err
	}
	err = processes.CheckSetNodes(rec.RunDirectory())
	if errors.Is(err, processes.ErrOldSupervisor) {
		err = fmt.Errorf("cluster %s: %w: run coracle restart %s, and then this command again", name, err, name)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx, rec)
}

// findRunning returns the record of a cluster that must run.
func findRunning(registry host.Registry, name string) (host.Record, error) {
	rec, err := mustFind(registry, name)
	if err == nil && !rec.Running() {
		err = stoppedError(name)
	}
	return rec, err
}

// changeSettings changes which nodes a running cluster has, in its settings and its
// record. It returns the settings.
func changeSettings(ctx context.Context, name string, change func(s *host.Settings) error) (s host.Settings, err error) {
	registry := host.NewRegistry(host.Root())
	err = registry.Locked(ctx, func() error {
		rec, err := findRunning(registry, name) // another command may be removing it
		if err != nil {
			return err
		}
		if s, err = host.ReadSettings(rec.DataDir); err != nil {
			return err
		}
		if err := change(&s); err != nil {
			return err
		}
		rec.Nodes, rec.Occupied = s.Nodes, s.Occupied()
		if err := registry.Put(rec); err != nil {
			return err
		}
		return s.Write()
	})
	return s, err
}

// runNodes makes the supervisor of a cluster run the nodes of its settings.
func runNodes(rec host.Record, s host.Settings) error {
	return processes.SetNodes(rec.RunDirectory(), nodesToRun(s))
}

// nodesToRun returns which nodes the supervisor of a cluster runs.
func nodesToRun(s host.Settings) processes.Nodes {
	return processes.Nodes{Numbers: s.NodeNumbers(), Several: s.Several()}
}

// awaitProcesses waits until the processes of a running cluster are as wanted.
func awaitProcesses(ctx context.Context, rec host.Record, wanted func(map[string]processes.Process) bool) error {
	for {
		st, ok, err := processes.Read(rec.RunDirectory())
		if err != nil {
			return err
		}
		if !ok || !rec.Running() {
			return fmt.Errorf("cluster %s has ended meanwhile: start it with coracle start %s", rec.Name, rec.Name)
		}
		byName := map[string]processes.Process{}
		for _, p := range st.Processes {
			byName[p.Name] = p
		}
		if wanted(byName) {
			return nil
		}
		if !supervise.Pause(ctx, nodePoll) {
			return ctx.Err()
		}
	}
}

// stage writes what is done next, as the stages of a start are written.
func stage(format string, args ...any) { fmt.Fprintf(os.Stderr, "coracle: "+format+"\n", args...) }
