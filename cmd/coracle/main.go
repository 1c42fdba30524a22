// Command coracle is a whole Kubernetes in one binary: `coracle up` runs a
// cluster in a few processes, and each component runs alone by its own name.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	_ "github.com/coracle-io/coracle/internal/processes/early" // is the supervisor, where one is asked for
	"github.com/coracle-io/coracle/internal/version"
)

func main() {
	// A panic in a goroutine of client-go's ends that goroutine's work and is
	// logged; those of components are for internal/supervise.
	utilruntime.ReallyCrash = false
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	root := command()
	root.SetArgs(args)
	return tell(os.Stderr, root.ExecuteContext(ctx))
}

// tell writes why a command failed, and returns its exit code.
func tell(out io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, errTold) {
		return exitFailed
	}
	for _, line := range strings.Split(inFlags(err), "\n") {
		if line == context.Canceled.Error() {
			line = errInterrupted.Error()
		}
		_, _ = fmt.Fprintln(out, "coracle:", line) // nobody else is there to be told
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	if coded := (codedError{}); errors.As(err, &coded) {
		return coded.code
	}
	return exitFailed
}

// Exit codes, besides 0. docs/components.md lists them.
const (
	exitFailed      = 1   // the command has failed
	exitImpaired    = 2   // the cluster runs, but not all of it works
	exitStopped     = 3   // the cluster does not run, as systemctl status has it
	exitNoCluster   = 4   // there is no such cluster, as systemctl status has it
	exitInterrupted = 130 // as shells say of a command that was ended with Ctrl-C
)

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// errInterrupted is a command that was ended before it was done.
var errInterrupted = errors.New("interrupted")

// asked is the error of a server whose context has ended: none, for that is how
// it is asked to end.
func asked(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// command is the table of subcommands.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "coracle",
		Short:         "A whole Kubernetes in one small fast binary",
		Version:       version.Kubernetes,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(
		&cobra.Group{ID: "cluster", Title: "A cluster on this machine:"},
		&cobra.Group{ID: "component", Title: "One component alone, over HTTPS:"},
	)
	root.AddCommand(
		upCommand(),
		stopCommand(),
		downCommand(),
		statusCommand(),
		runCommand(),
		undoCommand(),
		kubectlCommand(),
		etcdctlCommand(),
		apiServerCommand(),
		controllerManagerCommand(),
		schedulerCommand(),
		kubeletCommand(),
		proxyCommand(),
		dnsCommand(),
	)
	return root
}
