package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/dns"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// nodeRemoval is the removal of a node from a running cluster.
type nodeRemoval struct {
	node    string
	force   bool
	timeout time.Duration
	out     io.Writer
}

func removeNodeCommand(clusterName *string) *cobra.Command {
	r := &nodeRemoval{timeout: 5 * time.Minute}
	cmd := &cobra.Command{
		Use:     "remove NODE",
		Aliases: []string{"rm", "delete"},
		Short:   "Drain a node of this machine and remove it from a running cluster",
		Long: `Drain a node of this machine and remove it from a running cluster, with its
containers and files.

The node is drained as kubectl drain does it: pods are evicted, as their
PodDisruptionBudgets permit. Pods that nothing would create elsewhere, and volumes
of claims on the node, keep it from being removed, unless --force is given: then
it is not drained, and they are lost. Nothing of other nodes is removed. The first
node, which is the machine, goes with the cluster: coracle down.`,
		Example: `  coracle node remove host-3
  coracle node remove host-3 --force`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.node, r.out = args[0], cmd.OutOrStdout()
			return changeNodes(cmd.Context(), *clusterName, r.timeout, r.remove)
		},
	}
	cmd.Flags().BoolVar(&r.force, "force", false, "do not drain the node; its pods and volumes are lost")
	cmd.Flags().DurationVar(&r.timeout, "timeout", r.timeout, "how long to wait for the pods to leave, and the processes to end")
	return cmd
}

// remove removes the node from a cluster. From the moment at which the settings say
// that it leaves, no start of the cluster runs it, and each step may be repeated.
func (r *nodeRemoval) remove(ctx context.Context, rec host.Record) error {
	started := time.Now()
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return err
	}
	number, state, ok := settings.FindNode(r.node)
	switch {
	case !ok:
		_, err := fmt.Fprintf(r.out, "Nothing to remove: cluster %s has no node %s on this machine.\n", rec.Name, r.node)
		return err
	case number == 1:
		return fmt.Errorf("node %s is the machine itself, with the control plane: remove the cluster with coracle down --name=%s", r.node, rec.Name)
	}
	client, err := adminClient(rec, r.timeout)
	if err != nil {
		return err
	}
	if err := host.RefuseForeignMountsOf(rec.DataDir, number); err != nil {
		return err
	}
	if state != cluster.NodeLeaving && !r.force {
		if err := r.empty(ctx, rec, client, number); err != nil {
			return err
		}
	}
	settings, err = changeSettings(ctx, rec.Name, func(s *host.Settings) error {
		s.SetNodeState(number, cluster.NodeLeaving)
		return nil
	})
	if err == nil {
		err = r.end(ctx, rec, settings, client, number)
	}
	if err != nil {
		return r.unfinished(rec, err)
	}
	left, err := host.RemoveNode(rec.DataDir, rec.RunDirectory(), number)
	if err == nil {
		_, err = changeSettings(ctx, rec.Name, func(s *host.Settings) error {
			s.SetNodeState(number, cluster.NodeRemoved)
			return nil
		})
	}
	if err != nil {
		return r.unfinished(rec, err)
	}
	if _, err := fmt.Fprintf(r.out, "Node %s is gone after %.1f s.\n", r.node, time.Since(started).Seconds()); err != nil || len(left) == 0 {
		return err
	}
	_, err = fmt.Fprintf(r.out, "Left in its directory below %s/nodes, because it is not the node's: %s\n", rec.DataDir, strings.Join(left, ", "))
	return err
}

// unfinished adds to an error how to go on.
func (r *nodeRemoval) unfinished(rec host.Record, err error) error {
	return fmt.Errorf("%w; node %s is not removed completely: run coracle node remove --name=%s %s again", err, r.node, rec.Name, r.node)
}

// empty drains the node. It returns an error, and changes nothing, if something on the
// node would be lost.
func (r *nodeRemoval) empty(ctx context.Context, rec host.Record, client kubernetes.Interface, number int) error {
	if err := r.refuseVolumes(rec, number); err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask the API server of cluster %s: %w", rec.Name, err)
	}
	helper := &drain.Helper{
		Ctx: ctx, Client: client, GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, Timeout: r.timeout, Out: r.out, ErrOut: os.Stderr,
		EvictErrorRetryDelay: evictionRetry,
	}
	if _, errs := helper.GetPodsForDeletion(r.node); len(errs) > 0 {
		return fmt.Errorf("drain node %s: %w", r.node, errors.Join(errs...))
	}
	if err := drain.RunCordonOrUncordon(helper, node, true); err != nil {
		return fmt.Errorf("cordon node %s: %w", r.node, err)
	}
	stage("node %s is cordoned, and is being drained", r.node)
	if err := drain.RunNodeDrain(helper, r.node); err != nil {
		return fmt.Errorf("drain node %s: %w; it stays cordoned, until coracle kubectl uncordon %s", r.node, err, r.node)
	}
	return r.refuseVolumes(rec, number) // a pod may have come before the node was cordoned
}

// refuseVolumes returns an error if volumes on the node have data.
func (r *nodeRemoval) refuseVolumes(rec host.Record, number int) error {
	volumes, err := host.VolumesOfNode(rec.DataDir, number)
	if err == nil && len(volumes) > 0 {
		err = fmt.Errorf("node %s has the data of volumes (%s): delete their claims, or give --force to lose them", r.node, strings.Join(volumes, ", "))
	}
	return err
}

// evictionRetry is the time after which an eviction that a PodDisruptionBudget has
// refused is tried again.
const evictionRetry = time.Second

// end ends the processes and containers of the node, and removes what the machine and
// the API server have of it, except for its files. Containers end first: when the node is
// gone, its pods run elsewhere soon, and some may run once only.
func (r *nodeRemoval) end(ctx context.Context, rec host.Record, settings host.Settings, client kubernetes.Interface, number int) error {
	if err := runNodes(rec, settings); err != nil {
		return err
	}
	if err := awaitProcesses(ctx, rec, func(all map[string]processes.Process) bool {
		_, runs := all[processes.NodeProcess(number)]
		return !runs
	}); err != nil {
		return fmt.Errorf("end the process of node %s: %w", r.node, err)
	}
	stage("the process of node %s has ended", r.node)
	if err := dns.Withdraw(ctx, client, r.node); err != nil { // otherwise pods would go on asking it for names
		return err
	}
	if err := cluster.PurgeNode(ctx, settings.ClusterOptions(), number); err != nil {
		return err
	}
	if err := client.CoreV1().Nodes().Delete(ctx, r.node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the object of node %s: %w", r.node, err)
	}
	return deletePods(ctx, client, r.node)
}

// deletePods deletes the pods of a node whose containers have ended, so that others
// take their places at once.
func deletePods(ctx context.Context, client kubernetes.Interface, node string) error {
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		options := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
		err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete pod %s of namespace %s: %w", pod.Name, pod.Namespace, err))
		}
	}
	return errors.Join(errs...)
}
