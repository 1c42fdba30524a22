package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/supervise"
)

func statusCommand() *cobra.Command {
	var name, output string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Say how a cluster on this machine is",
		GroupID: "cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := existing(host.NewRegistry(host.Root), name)
			if err != nil {
				return err
			}
			c := look(cmd.Context(), rec)
			switch output {
			case "":
				c.print(cmd.OutOrStdout())
			case "json":
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(c)
			default:
				return fmt.Errorf("--output=%s: want json, or nothing for text", output)
			}
			return errors.Join(err, c.err)
		},
	}
	cmd.Flags().StringVar(&name, "name", "coracle", "name of the cluster")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json prints the cluster's record, its processes and what its API server answers")
	return cmd
}

// condition is how a cluster is.
type condition struct {
	host.Record
	Running bool `json:"running"`
	// Supervisor is what the supervisor says, as far as it runs.
	Supervisor *processes.Status `json:"supervisor,omitempty"`
	// Problem is what is wrong; "" if nothing is.
	Problem string `json:"problem,omitempty"`
	// ContextLost says that the kubeconfig has no context of the cluster any
	// more, which may be well all the same.
	ContextLost string `json:"contextLost,omitempty"`
	Version     string `json:"version,omitempty"`
	// Nodes are the nodes' names, and Ready or why not.
	Nodes       map[string]string `json:"nodes,omitempty"`
	Pods        int               `json:"pods"`
	RunningPods int               `json:"runningPods"`

	err error // Problem
}

// look finds out how a cluster is, in bounded time.
func look(ctx context.Context, rec host.Record) *condition {
	c := &condition{Record: rec, Running: rec.Running()}
	if !c.Running {
		c.wrong(fmt.Errorf("cluster %s is down", rec.Name))
		return c
	}
	st, ok, err := processes.Read(host.RunDir(rec.Name))
	if ok && err == nil && st.PID == rec.PID {
		c.Supervisor = &st
		for _, p := range st.Processes {
			if p.Suspended() {
				err = fmt.Errorf("cluster %s does not answer: its process %d (%s) is suspended; continue it with kill -CONT %d", rec.Name, p.PID, p.Name, p.PID)
			}
		}
	}
	if err == nil {
		err = answers(ctx, rec)
	}
	if err == nil {
		err = c.ask(ctx)
	}
	c.wrong(err)
	return c
}

func (c *condition) wrong(err error) {
	if err != nil {
		c.err, c.Problem = err, err.Error()
	}
}

// ask asks the API server.
func (c *condition) ask(ctx context.Context) error {
	config, lost, err := adminOf(c.Record)
	if err != nil {
		return err
	}
	if lost != nil {
		c.ContextLost = lost.Error()
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	info, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	c.Version = info.GitVersion
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.Nodes = map[string]string{}
	for i := range nodes.Items {
		c.Nodes[nodes.Items[i].Name] = readiness(&nodes.Items[i])
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.Pods = len(pods.Items)
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == v1.PodRunning {
			c.RunningPods++
		}
	}
	return nil
}

func (c *condition) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	line := func(key, format string, args ...any) { _, _ = fmt.Fprintf(w, key+"\t"+format+"\n", args...) }
	line("Cluster", "%s", c.Name)
	line("Data", "%s", c.DataDir)
	if !c.Running {
		line("Process", "not running (its data is kept: coracle up --name=%s starts it again)", c.Name)
		return
	}
	if c.Supervisor == nil {
		line("Process", "supervisor %d", c.PID)
	} else {
		line("Process", "supervisor %d, up for %s", c.PID, since(c.Supervisor.Since))
		for _, p := range c.Supervisor.Processes {
			line("", "%s", p)
			for _, text := range troubles(p) {
				line("", "  %s", text)
			}
		}
	}
	line("API server", "%s", c.Server)
	if c.ContextLost == "" {
		line("Kubeconfig", "%s, context %s", c.Kubeconfig, c.Name)
	} else {
		line("Kubeconfig", "lost: %s", c.ContextLost)
	}
	if c.Version == "" {
		return
	}
	line("Version", "%s", c.Version)
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		line("Node", "%s, %s", name, c.Nodes[name])
	}
	line("Pods", "%d, %d running", c.Pods, c.RunningPods)
}

// troubles are what is to be told of a process's components: those that do not
// run, have failed, or are kept from their work.
func troubles(p processes.Process) []string {
	var components []supervise.Component
	if err := json.Unmarshal(p.Components, &components); err != nil {
		return nil // it has not told yet
	}
	var texts []string
	for _, c := range components {
		if c.Phase == supervise.BackOff {
			texts = append(texts, fmt.Sprintf("%s ended, started again in %v: %s", c.Name, max(0, time.Until(c.NextStart)).Round(100*time.Millisecond), c.LastError))
		} else if c.LastError != "" {
			texts = append(texts, fmt.Sprintf("%s was started again %d times, last %v ago: %s", c.Name, c.Restarts, since(c.LastErrorTime), c.LastError))
		}
		for _, condition := range c.Conditions {
			texts = append(texts, fmt.Sprintf("%s, for %v: %s", c.Name, since(condition.Since), condition.Message))
		}
	}
	return texts
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

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
