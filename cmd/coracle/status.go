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

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/printable"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/processes/oomscore"
)

func statusCommand() *cobra.Command {
	var name, output string
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show the status of a cluster on this machine",
		Long: `Show the status of a cluster on this machine: its processes, why they last ended,
what keeps components from working, its nodes and pods.

The exit code is 0 if all of the cluster works, 2 if it runs but part of it does
not work, 3 if it is stopped and 4 if there is no cluster of that name.`,
		Example: `  coracle status
  coracle status dev -o json`,
		GroupID: "cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			rec, err := mustFind(host.NewRegistry(host.Root()), name)
			if err != nil {
				return err
			}
			c := statusOf(cmd.Context(), rec)
			if output == "json" { // on one line, unlike other reports
				return errors.Join(c.writeJSON(cmd.OutOrStdout()), c.err)
			}
			return errors.Join(write(cmd.OutOrStdout(), output, c), c.err)
		},
	}
	nameArgument(cmd, &name)
	addOutputFlag(cmd.Flags(), &output)
	return cmd
}

// clusterStatus is the state of a cluster. Its JSON form is the output of status
// and, in a list, of list. Programs read it: a field keeps its name and meaning,
// and docs/components.md describes it.
type clusterStatus struct {
	Name    string `json:"name"`
	DataDir string `json:"dataDir"`
	Running bool   `json:"running"` // whether its supervisor runs
	// Problem says why the cluster or a part of it does not work, one line for
	// each reason; "" if all works.
	Problem string `json:"problem,omitempty"`
	// Notes say what does not keep the cluster from working, and may matter later.
	Notes      []string `json:"notes,omitempty"`
	Server     string   `json:"server"`     // URL of the API server for clients on this machine
	Kubeconfig string   `json:"kubeconfig"` // path of the file that has the cluster's context, which is called Name
	// ContextLost says that the kubeconfig does not have the cluster's context
	// any more. That need not be a problem.
	ContextLost   string    `json:"contextLost,omitempty"`
	PID           int       `json:"pid,omitempty"`  // of the supervisor; 0 if it does not run
	Unit          string    `json:"unit,omitempty"` // the systemd unit that runs it
	Started       time.Time `json:"started,omitzero"`
	BinaryVersion string    `json:"binaryVersion"` // of the program that started it last
	// Options are the cluster's options, as in its settings; nil if the
	// settings cannot be read.
	Options *cluster.Options `json:"options,omitempty"`
	// Supervisor is the status that the supervisor reports; nil if it does not
	// run.
	Supervisor *processes.Status `json:"supervisor,omitempty"`

	// The API server answers the following. Version is "" if it does not.
	Version     string            `json:"version,omitempty"`
	Nodes       map[string]string `json:"nodes,omitempty"` // by name: Ready, or why it is not
	Pods        int               `json:"pods"`
	RunningPods int               `json:"runningPods"`

	record       host.Record
	err          error           // Problem, with its exit code
	notReady     error           // err without what does not keep the cluster from working (minorError)
	hasSuspended bool            // a process is suspended, and will not go on by itself
	lackNetwork  map[string]bool // the nodes, by name, that wait for a CNI configuration
}

// newStatus returns what the record and the settings of a cluster say. The error
// says why the settings cannot be used, and what to do.
func newStatus(rec host.Record) (*clusterStatus, error) {
	c := &clusterStatus{
		Name: rec.Name, DataDir: rec.DataDir, Running: rec.Running(), Server: rec.Server, Kubeconfig: rec.Kubeconfig, Unit: rec.Unit,
		Started: rec.Started, BinaryVersion: rec.BinaryVersion, record: rec,
	}
	if c.Running {
		c.PID = rec.PID
	}
	settings, err := host.ReadSettings(rec.DataDir)
	switch {
	case errors.Is(err, host.ErrNoSettings):
		return c, rec.CheckData() // an earlier version stored none
	case err != nil:
		return c, err
	case settings.Options.Name != rec.Name:
		return c, rec.CheckOwn()
	}
	shown := settings.Shown()
	c.Options = &shown
	return c, rec.CheckData()
}

// statusOf determines the status of a cluster. Each step has a timeout.
func statusOf(ctx context.Context, rec host.Record) *clusterStatus {
	c, settingsErr := newStatus(rec)
	if !c.Running {
		c.setProblem(exitStopped, errors.Join(fmt.Errorf("cluster %s is stopped", rec.Name), settingsErr))
		return c
	}
	problems := []error{c.suspended("supervisor", processes.Process{PID: rec.PID, Start: rec.PIDStart})}
	if score, err := oomscore.Of(rec.PID); err == nil { // otherwise it has just ended
		c.noteScore(score)
	}
	st, ok, err := processes.Read(rec.RunDirectory())
	problems = append(problems, err)
	switch {
	case err != nil:
	case !ok:
		problems = append(problems, fmt.Errorf("%s is gone, and with it the sockets and the status of the processes: end the cluster with coracle stop --name=%s and run up again", rec.RunDirectory(), rec.Name))
	case st.PID == rec.PID:
		c.Supervisor = &st
		problems = append(problems, c.inspect(st.Processes)...)
	}
	switch {
	case settingsErr != nil: // the keys of the cluster cannot be found either
		problems = append(problems, settingsErr)
	case !c.hasSuspended: // otherwise it cannot answer
		if err := answers(ctx, rec); err != nil {
			problems = append(problems, err)
		} else {
			problems = append(problems, c.askAPIServer(ctx))
		}
	}
	c.setProblem(exitImpaired, problems...)
	return c
}

// noteScore notes that the kernel may end the processes of a cluster with nodes before
// pods, if that is what the adjustment of its supervisor's OOM score means.
func (c *clusterStatus) noteScore(adjustment int) {
	if c.record.Nodes > 0 && adjustment > oomscore.Node {
		c.Notes = append(c.Notes, fmt.Sprintf("when memory is short, the kernel may end the processes of the cluster before pods: their OOM score adjustment is %d, not %d (coracle doctor says why)", adjustment, oomscore.Node))
	}
}

// inspect returns what keeps processes of the cluster from working.
func (c *clusterStatus) inspect(all []processes.Process) (problems []error) {
	for _, p := range all {
		problems = append(problems, c.suspended(p.Name, p))
		if p.PID == 0 || !p.Ready {
			problems = append(problems, errors.New(p.String()))
		}
		for _, component := range componentsOf(p) {
			for _, text := range problemsOf(component) {
				err := errors.New(text)
				if isMinor(component) {
					err = minorError{err}
				}
				problems = append(problems, err)
			}
		}
	}
	return problems
}

// minorError says what does not keep the cluster from working, such as a network that
// another program brings.
type minorError struct{ error }

// isMinor reports whether the conditions of a component are of that kind: what is wrong
// with manifests, which their author mends, ports of Ingresses that others have, and an
// address that the machine has lost, as a laptop that left its network: the API server
// answers on the machine, and the node is ready.
func isMinor(c cluster.Component) bool {
	return slices.Contains([]string{"addresses", "ingress", "manifests"}, c.Name) && c.Phase != cluster.BackOff
}

// suspended returns an error if a process of the cluster is suspended.
func (c *clusterStatus) suspended(name string, p processes.Process) error {
	if !p.Suspended() {
		return nil
	}
	c.hasSuspended = true
	return fmt.Errorf("cluster %s does not answer: its process %d (%s) is suspended; continue it with kill -CONT %d", c.Name, p.PID, name, p.PID)
}

func (c *clusterStatus) setProblem(code int, problems ...error) {
	if err := errors.Join(problems...); err != nil {
		c.err, c.Problem = codedError{err, code}, err.Error()
	}
	minor := func(err error) bool { return errors.As(err, new(minorError)) }
	if err := errors.Join(slices.DeleteFunc(slices.Clone(problems), minor)...); err != nil {
		c.notReady = codedError{err, code}
	}
}

// askAPIServer fills in what the API server answers. It returns an error if a
// node of this machine is not ready.
func (c *clusterStatus) askAPIServer(ctx context.Context) error {
	config, lost, err := adminOf(c.record)
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
	c.Nodes, c.lackNetwork = map[string]string{}, map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		c.Nodes[node.Name], c.lackNetwork[node.Name] = readiness(node), nodestatus.LacksNetwork(node)
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

// nodeProblem returns an error if a node of this machine is not ready. Nodes on
// other machines are not checked.
func (c *clusterStatus) nodeProblem() error {
	if c.record.Nodes == 0 || c.Options == nil {
		return nil
	}
	names := c.Options.NodeNames()
	if given := flagvalue.Last(c.Options.KubeletArgs, "hostname-override"); given != "" {
		names = []string{given} // several nodes do not have it
	}
	var problems []error
	for _, name := range names {
		switch how, there := c.Nodes[name]; {
		case !there:
			problems = append(problems, fmt.Errorf("node %s does not exist: its kubelet has not registered it yet", name))
		case how != nodeReady && c.lackNetwork[name] && c.Options.Node.Network != "": // then there is one node here
			problems = append(problems, minorError{fmt.Errorf("node %s is %s", name, how)})
		case how != nodeReady:
			problems = append(problems, fmt.Errorf("node %s is %s", name, how))
		}
	}
	return errors.Join(problems...)
}

// writeJSON writes the status as one line of JSON.
func (c *clusterStatus) writeJSON(out io.Writer) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = out.Write(append(printable.JSON(raw), '\n'))
	return err
}

// WriteText writes the status for a reader.
func (c *clusterStatus) WriteText(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	line := func(key, format string, args ...any) { _, _ = fmt.Fprintf(w, key+"\t"+format+"\n", args...) }
	line("Cluster", "%s", c.Name)
	line("Data", "%s", c.DataDir)
	if !c.Running {
		line("Process", "not running (its data is kept: coracle start %s starts it again)", c.Name)
		return
	}
	if c.Supervisor == nil {
		line("Process", "supervisor %d", c.PID)
	} else {
		line("Process", "supervisor %d, up for %s", c.PID, since(c.Supervisor.Since))
		for _, p := range c.Supervisor.Processes {
			line("", "%s", p)
			for _, text := range append(currentProblems(p), pastProblems(p)...) {
				line("", "  %s", text)
			}
		}
	}
	for _, note := range c.Notes {
		line("Note", "%s", note)
	}
	line("API server", "%s", c.Server)
	switch {
	case c.record.Node.Joined != nil:
		line("Kubeconfig", "%s, of this node alone", c.Kubeconfig)
	case c.ContextLost == "":
		line("Kubeconfig", "%s, context %s", c.Kubeconfig, c.Name)
	default:
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

// currentProblems returns the components of a process that do not run or do not
// work.
func currentProblems(p processes.Process) []string {
	var texts []string
	for _, c := range componentsOf(p) {
		texts = append(texts, problemsOf(c)...)
	}
	return texts
}

// problemsOf returns why a component does not run or does not work.
func problemsOf(c cluster.Component) []string {
	var texts []string
	if c.Phase == cluster.BackOff {
		texts = append(texts, fmt.Sprintf("%s ended, started again in %v: %s", c.Name, max(0, time.Until(c.NextStart)).Round(100*time.Millisecond), c.LastError))
	}
	for _, condition := range c.Conditions {
		texts = append(texts, fmt.Sprintf("%s, for %v: %s", c.Name, since(condition.Since), condition.Message))
	}
	return texts
}

// pastProblems returns the components of a process that have failed and work
// again.
func pastProblems(p processes.Process) []string {
	var texts []string
	for _, c := range componentsOf(p) {
		if c.Phase != cluster.BackOff && c.LastError != "" {
			texts = append(texts, fmt.Sprintf("%s was started again %d times, last %v ago: %s", c.Name, c.Restarts, since(c.LastErrorTime), c.LastError))
		}
	}
	return texts
}

// componentsOf returns the components that a process has reported.
func componentsOf(p processes.Process) []cluster.Component {
	var components []cluster.Component
	if err := json.Unmarshal(p.Components, &components); err != nil {
		return nil
	}
	return components
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// nodeReady is the readiness of a node that works.
const nodeReady = "Ready"

func readiness(node *v1.Node) string {
	c := nodestatus.Condition(node, v1.NodeReady)
	switch {
	case c == nil:
		return "NotReady: the kubelet has not reported yet"
	case c.Status == v1.ConditionTrue:
		return nodeReady
	}
	return fmt.Sprintf("NotReady: %s: %s", c.Reason, c.Message)
}
