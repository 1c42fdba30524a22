package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodejoin"
)

// leaveFlags are the flags of `coracle leave`.
type leaveFlags struct {
	name    string
	yes     bool
	force   bool
	timeout time.Duration
}

func leaveCommand() *cobra.Command {
	f := &leaveFlags{timeout: 2 * time.Minute}
	cmd := &cobra.Command{
		Use:   "leave [NAME]",
		Short: "Remove the node or server that coracle join has made of this machine",
		Long: `Remove the node or server that coracle join has made of this machine: evict its
pods, delete the node, and remove all that is left of it here. The etcd of the other
servers forgets a server. The last server is removed by coracle down.

A node may evict its pods, but not delete itself: unless a role of the cluster
allows it, leave prints what to run where the administrator is. Pods of DaemonSets
end with the node. Leave asks first, unless --yes is given.`,
		Example: `  coracle leave
  coracle leave dev --yes`,
		GroupID: "cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.timeout <= 0 {
				return fmt.Errorf("--timeout=%v: want a duration, such as 2m", f.timeout)
			}
			return f.run(cmd.Context())
		},
	}
	nameArgument(cmd, &f.name)
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask, for use in scripts")
	cmd.Flags().BoolVar(&f.force, "force", false, "remove the node here also if its pods cannot be evicted")
	cmd.Flags().DurationVar(&f.timeout, "timeout", f.timeout, "how long to wait for the pods to end")
	return cmd
}

func (f *leaveFlags) run(ctx context.Context) error {
	registry := host.NewRegistry(host.Root())
	rec, err := mustFind(registry, f.name)
	if err != nil {
		return err
	}
	if rec.Node.Joined == nil {
		settings, err := host.ReadSettings(rec.DataDir)
		if err == nil && settings.HoldsMember() {
			return f.leaveAsServer(ctx, registry, rec, settings)
		}
		if err == nil {
			err = fmt.Errorf("cluster %s has its control plane on this machine: coracle down --name=%s removes it", rec.Name, rec.Name)
		}
		return err
	}
	node, err := nodeNameOf(rec)
	if err != nil {
		return err
	}
	if err := f.confirm(ctx, rec, node); err != nil {
		return err
	}
	deleted, err := f.withdraw(ctx, rec, node)
	if err != nil && !f.force {
		return fmt.Errorf("node %s was not removed: %w; try again, or remove it without that with --force", node, err)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "coracle: warning: %v\n", err)
	}
	if err := down(ctx, registry, rec, true); err != nil {
		return err
	}
	if !deleted {
		fmt.Printf("The cluster still lists the node. Delete it where the administrator is: coracle kubectl delete node %s\n", node)
	}
	return nil
}

// confirm asks the user whether the node may be removed.
func (f *leaveFlags) confirm(ctx context.Context, rec host.Record, node string) error {
	return f.agree(ctx, rec, "node "+node, fmt.Sprintf("Node %s leaves the cluster at %s: its pods are evicted, and its containers, their volumes and %s are deleted permanently.", node, rec.Node.Joined.Server, rec.DataDir))
}

// agree asks the user whether somebody may leave, with all that it means.
func (f *leaveFlags) agree(ctx context.Context, rec host.Record, who, what string) error {
	if f.yes {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return fmt.Errorf("%s Confirm with coracle leave %s --yes, or keep it with coracle stop %s", what, rec.Name, rec.Name)
	}
	fmt.Printf("%s Leave? [y/N] ", what)
	agreed, err := agrees(ctx)
	if err == nil && !agreed {
		err = fmt.Errorf("%s was not changed", who)
	}
	return err
}

// withdraw evicts the pods of the node, as the node, and deletes the node if it may
// do that. It reports whether the cluster does not have the node any more.
func (f *leaveFlags) withdraw(ctx context.Context, rec host.Record, node string) (deleted bool, err error) {
	config, err := identityOf(rec).Config()
	if err != nil && !rec.Served {
		return true, nil // it has never joined
	}
	if err != nil {
		return false, err
	}
	if !rec.Running() {
		return false, fmt.Errorf("it does not run, so that its pods would not end: start it with coracle start %s", rec.Name)
	}
	config.Timeout = answerTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, err
	}
	fmt.Printf("Evicting the pods of node %s.\n", node)
	draining, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := nodejoin.Drain(draining, client, node); err != nil {
		return false, err
	}
	err = client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	}
	return false, fmt.Errorf("delete node %s: %w", node, err)
}
