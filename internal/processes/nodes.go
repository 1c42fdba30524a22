package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Nodes says which nodes a supervisor runs.
type Nodes struct {
	// Numbers are the numbers of the nodes, from 1 and in order. Without any, the
	// control plane runs alone.
	Numbers []int `json:"numbers"`
	// Several says that the control plane and the first node work with further nodes.
	// They are started again when that changes.
	Several bool `json:"several"`
}

// ErrOldSupervisor reports that a supervisor of an earlier version runs the cluster,
// which cannot change its nodes. Its processes may be unable to read settings with
// nodes that have come and gone.
var ErrOldSupervisor = errors.New("its supervisor is of an earlier version")

func nodesFile(runDir string) string { return runDir + "/nodes.json" }

// maxNodes bounds the nodes' file, in bytes.
const maxNodes = 64 << 10

// CheckSetNodes returns the error that SetNodes would return for the supervisor of a run
// directory.
func CheckSetNodes(runDir string) error {
	_, err := changeable(runDir)
	return err
}

// changeable returns the supervisor of a run directory, or an error if it cannot change
// its nodes.
func changeable(runDir string) (supervisor Process, err error) {
	st, ok, err := Read(runDir)
	if err != nil {
		return supervisor, err
	}
	supervisor = Process{PID: st.PID, Start: st.Start}
	if !ok || !supervisor.Running() {
		return supervisor, fmt.Errorf("no supervisor runs in %s", runDir)
	}
	if !st.ChangesNodes {
		return supervisor, ErrOldSupervisor
	}
	return supervisor, nil
}

// SetNodes makes the supervisor of a run directory run these nodes: it starts those
// that are new, ends those that are not among them, and starts again what Several is
// for. SetNodes returns when the supervisor was told, and may be called again.
func SetNodes(runDir string, nodes Nodes) error {
	supervisor, err := changeable(runDir)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(nodes)
	if err != nil {
		return err
	}
	if err := sharedfile.Replace(nodesFile(runDir), sharedfile.Content{Data: append(raw, '\n'), Mode: 0o600}); err != nil {
		return err
	}
	handle, err := os.FindProcess(supervisor.PID) // from here on the handle identifies it
	if err != nil {
		return fmt.Errorf("find the supervisor: %w", err)
	}
	defer func() { _ = handle.Release() }()
	if !supervisor.Running() {
		return fmt.Errorf("no supervisor runs in %s", runDir)
	}
	if err := handle.Signal(changeSignal); err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	return nil
}

// changeSignal asks a supervisor to read the nodes' file.
const changeSignal = syscall.SIGUSR1

// readNodes reads the nodes' file.
func readNodes(runDir string) (n Nodes, err error) {
	raw, err := sharedfile.ReadOwn(nodesFile(runDir), maxNodes)
	if err == nil {
		err = json.Unmarshal(raw, &n)
	}
	return n, err
}

// specs returns the processes of a cluster. The first one records the cluster when it
// is ready for the first time.
func (a *Arguments) specs() []Spec {
	which := []string{"--name=" + a.Name, "--data-dir=" + a.DataDir}
	if a.Served {
		which = append(which, "--served")
	}
	command := func(process string, more ...string) []string {
		args := append([]string{RunCommand, process}, which...)
		if a.Nodes.Several {
			args = append(args, "--several")
		}
		return append(args, more...)
	}
	var all []Spec
	if !a.Joined {
		all = append(all, Spec{Name: ControlPlane, Args: command(ControlPlane), StopTimeout: controlPlaneTimeout})
	}
	for _, node := range a.Nodes.Numbers {
		s := Spec{Name: NodeProcess(node), Args: command(Node), StopTimeout: nodeTimeout, Stage: 1}
		if node > 1 {
			s.Args = command(Node, fmt.Sprintf("--node=%d", node))
		}
		all = append(all, s)
	}
	if len(all) > 0 {
		all[0].First = []string{"--first"}
	}
	return all
}

// String returns the numbers for a command line, such as 1,3.
func (n *Nodes) String() string {
	var texts []string
	for _, number := range n.Numbers {
		texts = append(texts, strconv.Itoa(number))
	}
	return strings.Join(texts, ",")
}

// Set parses what String returns.
func (n *Nodes) Set(text string) error {
	n.Numbers = nil
	for one := range strings.SplitSeq(text, ",") {
		if one == "" {
			continue
		}
		number, err := strconv.Atoi(one)
		if err != nil || number < 1 {
			return errors.New("want numbers of nodes, such as 1,2")
		}
		n.Numbers = append(n.Numbers, number)
	}
	return nil
}

// change makes the processes those that Config.Changed returns.
func (s *supervisor) change() {
	if s.stopping || s.config.Changed == nil {
		return
	}
	specs, err := s.config.Changed()
	if err != nil {
		s.log('E', "Cannot read which nodes to run; going on with those that run", "err", err)
		return
	}
	for _, c := range slices.Clone(s.children) {
		i := slices.IndexFunc(specs, func(spec Spec) bool { return spec.Name == c.spec.Name })
		switch {
		case i < 0:
			s.endChild(c, leaves)
		case c.next == leaves || !slices.Equal(c.spec.Args, specs[i].Args):
			c.spec = specs[i]
			s.endChild(c, startsAgain)
		}
	}
	for _, spec := range specs {
		if !slices.ContainsFunc(s.children, func(c *child) bool { return c.spec.Name == spec.Name }) {
			c := &child{spec: spec, status: Process{Name: spec.Name}}
			s.children = append(s.children, c)
			s.start(c)
		}
	}
	s.publish()
}

// endChild ends a process. One that does not run at the moment, and is to start
// again, starts when it would have.
func (s *supervisor) endChild(c *child, next fate) {
	c.next = next
	switch {
	case c.status.PID != 0:
		c.status.Ready = false // nobody waits for this instance
		c.stop()
	case next == leaves:
		s.forget(c)
	default:
		c.next = restarts
	}
}

// asked handles the end of a process that endChild has ended.
func (s *supervisor) asked(c *child) {
	next := c.next
	c.next = restarts
	s.log('I', "Ended, for the nodes of the cluster have changed", "process", c.spec.Name, "pid", c.status.PID)
	c.status.PID, c.status.Start, c.status.Ready, c.status.Components = 0, 0, false, nil
	c.status.LastEnd, c.status.LastCause = time.Now(), "the nodes of the cluster have changed"
	if next == leaves {
		s.forget(c)
	}
	switch {
	case s.stopping:
		s.stopNext()
	case next == startsAgain:
		s.start(c)
	}
}

// forget removes a process that does not run.
func (s *supervisor) forget(c *child) {
	c.next = leaves // a start that was scheduled does not take place
	s.children = slices.DeleteFunc(s.children, func(other *child) bool { return other == c })
	s.checkReady()
	s.publish()
}
