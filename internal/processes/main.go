package processes

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Arguments are those of the subcommand Command.
type Arguments struct {
	Name, DataDir, RunDir string
	Node                  bool
	// Served is Config.Served.
	Served bool
	// LockFD is a file to keep open, for the lock on it; 0 is none.
	LockFD int
	// Log is the file that standard error is; "" if it is a terminal or the like.
	Log string
	// Failed are the arguments of Config.Failed.
	Failed []string
}

// List is the arguments as a command line.
func (a Arguments) List() []string {
	return []string{
		Command, "--name=" + a.Name, "--data-dir=" + a.DataDir, "--run-dir=" + a.RunDir,
		fmt.Sprintf("--node=%t", a.Node), fmt.Sprintf("--served=%t", a.Served), fmt.Sprintf("--lock-fd=%d", a.LockFD), "--log=" + a.Log, "--failed=" + strings.Join(a.Failed, " "),
	}
}

// Main is the program as a supervisor. It returns the exit code.
func Main(args []string) int {
	var a Arguments
	fs := flag.NewFlagSet(Command, flag.ContinueOnError)
	fs.StringVar(&a.Name, "name", "", "name of the cluster")
	fs.StringVar(&a.DataDir, "data-dir", "", "its data directory")
	fs.StringVar(&a.RunDir, "run-dir", "", "where the status goes")
	fs.BoolVar(&a.Node, "node", false, "run a node as well")
	fs.BoolVar(&a.Served, "served", false, "the cluster has served before as it is started now")
	fs.IntVar(&a.LockFD, "lock-fd", 0, "open file whose lock is to be kept")
	fs.StringVar(&a.Log, "log", "", "file that standard error is")
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
	owner, err := own(a.RunDir, a.DataDir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coracle:", err)
		return 1
	}
	defer func() { _ = owner.Close() }()
	// Where it was started would stay busy, as a disk that is to be unmounted.
	if err := os.Chdir("/"); err != nil {
		fmt.Fprintln(os.Stderr, "coracle:", err)
		return 1
	}
	c := Config{Program: "/proc/self/exe", Name: os.Args[0], RunDir: a.RunDir, Log: a.Log, LockFD: a.LockFD, Served: a.Served, Failed: strings.Fields(*failed)}
	which := []string{"--name=" + a.Name, "--data-dir=" + a.DataDir}
	if a.Served {
		which = append(which, "--served")
	}
	c.Processes = append(c.Processes, Spec{
		Name: ControlPlane, Args: append([]string{RunCommand, ControlPlane}, which...), First: []string{"--first"}, Patience: controlPlanePatience,
	})
	if a.Node {
		c.Processes = append(c.Processes, Spec{Name: Node, Args: append([]string{RunCommand, Node}, which...), Patience: nodePatience})
	}
	return Run(c)
}

// RunCommand is the hidden subcommand that is a process.
const RunCommand = "run"

// How long the processes may take to end. The control plane gives requests under
// way four seconds of it. Together it is less than what
// `coracle down` and service managers give the supervisor.
const (
	controlPlanePatience = 6 * time.Second
	nodePatience         = 12 * time.Second
)
