package processes

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-io/coracle/internal/processes/oomscore"
)

// Arguments are the arguments of the subcommand Command.
type Arguments struct {
	Name, DataDir string // of the cluster
	Nodes         Nodes  // those that run at first
	Joined        bool   // the control plane is on another machine, and the node runs alone
	// RunDir is the directory of the status and of crash reports.
	RunDir string
	// Log is the file that standard error writes to; "" if it is no file. The
	// processes may rotate it.
	Log string
	// LockFD is a file descriptor to keep open for its lock; 0 for none.
	LockFD int
	// Served is true if the cluster was ready before with the same settings. A
	// failed start is then retried, because its cause, such as a full disk or a
	// missing network, may go away.
	Served bool
	// Failed is a command line that replaces this process when a start has
	// failed permanently. It gets LockFD as --lock-fd, and the reason as its last
	// argument. If it is nil, the process ends.
	Failed []string
}

// List returns the arguments as a command line.
func (a Arguments) List() []string {
	return []string{
		Command, "--name=" + a.Name, "--data-dir=" + a.DataDir, "--run-dir=" + a.RunDir,
		"--nodes=" + a.Nodes.String(), fmt.Sprintf("--several=%t", a.Nodes.Several), fmt.Sprintf("--joined=%t", a.Joined), fmt.Sprintf("--served=%t", a.Served),
		fmt.Sprintf("--lock-fd=%d", a.LockFD), "--log=" + a.Log, "--failed=" + strings.Join(a.Failed, " "),
	}
}

// standardUmask is the umask of all processes of a cluster. They set the modes of files
// that others must not read. With the umask of a careful user, the root directories of
// containers would be closed to all users in the containers but root.
const standardUmask = 0o022

// Main runs the supervisor and returns its exit code.
func Main(args []string) int {
	SetName(Supervisor)
	syscall.Umask(standardUmask)
	_ = oomscore.Set(oomscore.Node) // the processes inherit it; the node's process reports a failure
	c := Config{Program: "/proc/self/exe", Argument0: os.Args[0]}
	a := &c.Arguments
	fs := flag.NewFlagSet(Command, flag.ContinueOnError)
	fs.StringVar(&a.Name, "name", "", "name of the cluster")
	fs.StringVar(&a.DataDir, "data-dir", "", "its data directory")
	fs.StringVar(&a.RunDir, "run-dir", "", "directory of the status")
	fs.Var(&a.Nodes, "nodes", "numbers of the nodes to run as well")
	fs.BoolVar(&a.Nodes.Several, "several", false, "the control plane and the first node work with further nodes")
	fs.BoolVar(&a.Joined, "joined", false, "run the node alone, whose control plane is on another machine")
	fs.BoolVar(&a.Served, "served", false, "the cluster has served before with the same settings")
	fs.IntVar(&a.LockFD, "lock-fd", 0, "file descriptor to keep open for its lock")
	fs.StringVar(&a.Log, "log", "", "file that standard error writes to")
	failed := fs.String("failed", "", "subcommand to run when the start failed")
	if fs.Parse(args) != nil {
		return 2
	}
	if a.DataDir == "" || a.RunDir == "" {
		fmt.Fprintln(os.Stderr, "coracle: supervise is what coracle up runs; use that")
		return 2
	}
	if a.LockFD > 0 {
		syscall.CloseOnExec(a.LockFD)
	}
	owner, err := lockRunDir(a.RunDir, a.DataDir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coracle:", err)
		return 1
	}
	defer func() { _ = owner.Close() }()
	// Do not keep the current directory busy: its disk may have to be
	// unmounted.
	if err := os.Chdir("/"); err != nil {
		fmt.Fprintln(os.Stderr, "coracle:", err)
		return 1
	}
	a.Failed = strings.Fields(*failed)
	c.Processes = a.specs()
	c.Changed = func() ([]Spec, error) {
		var err error
		now := *a
		now.Nodes, err = readNodes(a.RunDir)
		return now.specs(), err
	}
	return Run(c)
}

// SetName makes ps and top show this process by its name in the cluster, such as
// coracle-node, as far as that fits (15 bytes, proc_pid_comm(5)). The kernel has named it
// after the last element of /proc/self/exe.
func SetName(process string) {
	_ = os.WriteFile("/proc/self/comm", []byte("coracle-"+process), 0o644) // it works without
}

// NodeProcess returns the name of the process of a node, numbered from 1.
func NodeProcess(node int) string {
	if node <= 1 {
		return Node
	}
	return fmt.Sprintf("%s-%d", Node, node)
}

// RunCommand is the hidden subcommand that runs one process of a cluster.
const RunCommand = "run"

// Bounds on the time that the processes take to end. Nodes end at the same time. The control plane
// uses four seconds for requests in progress. The sum must be less than the time that `coracle down`
// and service managers give the supervisor.
const (
	controlPlaneTimeout = 6 * time.Second
	nodeTimeout         = 12 * time.Second
)
