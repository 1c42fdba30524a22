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
		Use:   "status",
		Short: "Say how a cluster on this machine is",
		Long: `Say how a cluster on this machine is.

The exit code is 0 if it runs and all of it works, 2 if it runs but not all of it
works, 3 if it is stopped and 4 if there is none of that name.`,
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
	// Problem is what keeps the cluster or a part of it from its work; "" if
	// nothing does.
	Problem string `json:"problem,omitempty"`
	// ContextLost says that the kubeconfig has no context of the cluster any
	// more, which may be well all the same.
	ContextLost string `json:"contextLost,omitempty"`
	Version     string `json:"version,omitempty"`
	// Nodes are the nodes' names, and Ready or why not.
	Nodes       map[string]string `json:"nodes,omitempty"`
	Pods        int               `json:"pods"`
	RunningPods int               `json:"runningPods"`

	err  error // Problem, with its exit code
	held bool  // a process was told not to run, and does not by itself
}

// look finds out how a cluster is, in bounded time.
func look(ctx context.Context, rec host.Record) *condition {
	c := &condition{Record: rec, Running: rec.Running()}
	if !c.Running {
		c.wrong(exitStopped, fmt.Errorf("cluster %s is down", rec.Name))
		return c
	}
	problems := []error{c.suspended("supervisor", processes.Process{PID: rec.PID, Start: rec.PIDStart})}
	st, ok, err := processes.Read(host.RunDir(rec.Name))
	problems = append(problems, err)
	switch {
	case err != nil:
	case !ok:
		problems = append(problems, fmt.Errorf("%s is gone, and with it the sockets and the status of the processes: end the cluster with coracle stop --name=%s and run up again", host.RunDir(rec.Name), rec.Name))
	case st.PID == rec.PID:
		c.Supervisor = &st
		problems = append(problems, c.inspect(st.Processes)...)
	}
	if !c.held { // or it would be waited for in vain
		if err := answers(ctx, rec); err != nil {
			problems = append(problems, err)
		} else {
			problems = append(problems, c.ask(ctx))
		}
	}
	c.wrong(exitImpaired, errors.Join(problems...))
	return c
}

// inspect reports what keeps processes of the cluster from their work.
func (c *condition) inspect(all []processes.Process) (problems []error) {
	for _, p := range all {
		problems = append(problems, c.suspended(p.Name, p))
		if p.PID == 0 || !p.Ready {
			problems = append(problems, errors.New(p.String()))
		}
		for _, text := range troubles(p) {
			problems = append(problems, errors.New(text))
		}
	}
	return problems
}

// suspended reports that a process of the cluster was told not to run.
func (c *condition) suspended(name string, p processes.Process) error {
	if !p.Suspended() {
		return nil
	}
	c.held = true
	return fmt.Errorf("cluster %s does not answer: its process %d (%s) is suspended; continue it with kill -CONT %d", c.Name, p.PID, name, p.PID)
}

func (c *condition) wrong(code int, err error) {
	if err != nil {
		c.err, c.Problem = codedError{err, code}, err.Error()
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
	problem := c.nodeProblem()
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
	return problem
}

// nodeProblem reports that the node of this machine does not do its work.
// Others are for those who look after their machines.
func (c *condition) nodeProblem() error {
	if c.ControlOnly {
		return nil
	}
	settings, err := host.ReadSettings(c.DataDir)
	if err != nil {
		return err
	}
	name := settings.NodeName
	if given := lastArgument(settings.KubeletArgs, "hostname-override"); given != "" {
		name = given
	}
	switch how, there := c.Nodes[name]; {
	case !there:
		return fmt.Errorf("node %s is not there: its kubelet has not registered it yet", name)
	case how != nodeReady:
		return fmt.Errorf("node %s is %s", name, how)
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
			for _, text := range append(troubles(p), past(p)...) {
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

// troubles are those of a process's components that do not run now, or are
// kept from their work.
func troubles(p processes.Process) []string {
	var texts []string
	for _, c := range componentsOf(p) {
		if c.Phase == supervise.BackOff {
			texts = append(texts, fmt.Sprintf("%s ended, started again in %v: %s", c.Name, max(0, time.Until(c.NextStart)).Round(100*time.Millisecond), c.LastError))
		}
		for _, condition := range c.Conditions {
			texts = append(texts, fmt.Sprintf("%s, for %v: %s", c.Name, since(condition.Since), condition.Message))
		}
	}
	return texts
}

// past is what has failed in a process and works again.
func past(p processes.Process) []string {
	var texts []string
	for _, c := range componentsOf(p) {
		if c.Phase != supervise.BackOff && c.LastError != "" {
			texts = append(texts, fmt.Sprintf("%s was started again %d times, last %v ago: %s", c.Name, c.Restarts, since(c.LastErrorTime), c.LastError))
		}
	}
	return texts
}

// componentsOf are the components of a process, once it has told.
func componentsOf(p processes.Process) []supervise.Component {
	var components []supervise.Component
	if err := json.Unmarshal(p.Components, &components); err != nil {
		return nil
	}
	return components
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// nodeReady is how a node is that does its work.
const nodeReady = "Ready"

func readiness(node *v1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			if c.Status == v1.ConditionTrue {
				return nodeReady
			}
			return fmt.Sprintf("NotReady: %s: %s", c.Reason, c.Message)
		}
	}
	return "NotReady: the kubelet has not reported yet"
}
