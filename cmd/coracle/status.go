package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/host"
)

func statusCommand() *cobra.Command {
	var name, output string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Say how a cluster on this machine is",
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := host.NewRegistry(host.Root).Get(name)
			if errors.Is(err, host.ErrNoCluster) {
				return fmt.Errorf("no cluster %s is on this machine: start one with coracle up --name=%s", name, name)
			}
			if err != nil {
				return err
			}
			switch output {
			case "":
				return status(cmd.Context(), cmd.OutOrStdout(), rec)
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(rec)
			}
			return fmt.Errorf("--output=%s: want json, or nothing for text", output)
		},
	}
	cmd.Flags().StringVar(&name, "name", "coracle", "name of the cluster")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json prints the cluster's record")
	return cmd
}

func status(ctx context.Context, out io.Writer, rec host.Record) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	line := func(key, format string, args ...any) { _, _ = fmt.Fprintf(w, key+"\t"+format+"\n", args...) }
	line("Cluster", "%s", rec.Name)
	line("Data", "%s", rec.DataDir)
	if !rec.Running() {
		line("Process", "not running (its data is kept: coracle up --name=%s starts it again)", rec.Name)
		return fmt.Errorf("cluster %s is down", rec.Name)
	}
	line("Process", "%d, up for %v", rec.PID, time.Since(rec.Started).Round(time.Second))
	line("API server", "%s", rec.Server)
	line("Kubeconfig", "%s, context %s", rec.Kubeconfig, rec.Name)

	if err := answers(ctx, rec); err != nil {
		return err
	}
	config, err := adminOf(rec)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	info, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	line("Version", "%s", info.GitVersion)
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		line("Node", "%s, %s", nodes.Items[i].Name, readiness(&nodes.Items[i]))
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	running := 0
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == v1.PodRunning {
			running++
		}
	}
	line("Pods", "%d, %d running", len(pods.Items), running)
	return nil
}

func readiness(node *v1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			if c.Status == v1.ConditionTrue {
				return "Ready"
			}
			return fmt.Sprintf("NotReady: %s: %s", c.Reason, c.Message)
		}
	}
	return "NotReady: the kubelet has not reported yet"
}
