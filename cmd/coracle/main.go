// Command coracle is a whole Kubernetes in one binary. `coracle up` runs a
// cluster in a few processes; each component also runs alone by its own name.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/coracle-io/coracle/internal/printable"
	_ "github.com/coracle-io/coracle/internal/processes/early" // runs the supervisor if the command line asks for it
	"github.com/coracle-io/coracle/internal/version"
)

func main() {
	// A panic in a goroutine of client-go ends its work and is logged. Panics
	// of components are handled by internal/supervise.
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
	return report(os.Stderr, root.ExecuteContext(ctx))
}

// report writes the error of a command, one line for each, without empty lines
// and repeated ones, and returns the exit code.
func report(out io.Writer, err error) int {
	if err == nil {
		return 0
	}
	written := []string{errReported.Error()}
	for _, line := range strings.Split(inFlags(err), "\n") {
		if line == context.Canceled.Error() {
			line = errInterrupted.Error()
		}
		if strings.TrimSpace(line) == "" || slices.Contains(written, line) {
			continue
		}
		written = append(written, line)
		_, _ = fmt.Fprintln(out, "coracle:", printable.Line(line)) // there is nowhere else to report to
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
	exitFailed      = 1   // the command failed
	exitImpaired    = 2   // the cluster is running, but not ready
	exitStopped     = 3   // the cluster does not run, as systemctl status has it
	exitNoCluster   = 4   // there is no such cluster, as systemctl status has it
	exitInterrupted = 130 // as shells report a command that Ctrl-C ended
)

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// errInterrupted reports that a command was ended before it was done.
var errInterrupted = errors.New("interrupted")

// command returns the root command with all subcommands.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "coracle",
		Short: "A whole Kubernetes in one small fast binary",
		Long: `A whole Kubernetes in one small fast binary.

Doctor says what this machine lacks. Up starts a cluster and makes it the current
context of kubectl. Down removes all of it.`,
		Example: `  coracle doctor
  coracle up
  coracle kubectl get nodes
  coracle down`,
		Version:       version.Kubernetes,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(
		&cobra.Group{ID: "cluster", Title: "A cluster on this machine:"},
		&cobra.Group{ID: "component", Title: "One component alone, over HTTPS:"},
		&cobra.Group{ID: "other", Title: "Other commands:"},
	)
	root.SetCompletionCommandGroupID("other")
	root.SetHelpCommandGroupID("other")
	root.AddCommand(
		upCommand(),
		startCommand(),
		stopCommand(),
		restartCommand(),
		downCommand(),
		listCommand(),
		statusCommand(),
		doctorCommand(),
		logsCommand(),
		kubeconfigCommand(),
		whyCommand(),
		runCommand(),
		undoCommand(),
		imageCommand(),
		nodeCommand(),
		tokenCommand(),
		joinCommand(),
		leaveCommand(),
		kubectlCommand(),
		etcdctlCommand(),
		apiServerCommand(),
		controllerManagerCommand(),
		schedulerCommand(),
		kubeletCommand(),
		proxyCommand(),
		dnsCommand(),
		versionCommand(),
	)
	nameArguments(root)
	hideEmptyDefaults(root)
	return root
}

// hideEmptyDefaults keeps the help of the commands below cmd from showing [] as the default
// of flags that have none. pflag itself hides it for these types only.
func hideEmptyDefaults(cmd *cobra.Command) {
	hidden := []string{"stringSlice", "stringArray", "intSlice"}
	for _, c := range cmd.Commands() {
		hideEmptyDefaults(c)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.DefValue == "[]" && !slices.Contains(hidden, f.Value.Type()) {
				f.DefValue = ""
			}
		})
	}
}

// nameArguments makes the commands below cmd say which arguments they want if
// their number is wrong.
func nameArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		nameArguments(c)
		check := c.Args
		if check == nil || !strings.Contains(c.Use, " ") {
			continue
		}
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err == nil {
				return nil
			}
			problem := "too many arguments"
			if len(args) == 0 {
				problem = "no argument"
			}
			return fmt.Errorf("%s: want %s %s", problem, c.Parent().CommandPath(), c.Use)
		}
	}
}

// noArguments refuses arguments. For "--scheduler false", whose value is an argument, and
// for a name, it shows how the value of a flag is written.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unexpected argument %q: %s takes none", args[0], cmd.CommandPath())
	if cmd.Flags().Lookup("name") != nil {
		err = fmt.Errorf("%w; the value of a flag follows =, such as --name=dev", err)
	}
	return err
}

// wantSubcommand refuses all arguments of a command that only groups those with the
// given names: cobra passes it what is none of them.
func wantSubcommand(names ...string) cobra.PositionalArgs {
	last := len(names) - 1
	list := func(word string) string { return strings.Join(names[:last], ", ") + " " + word + " " + names[last] }
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %s: want %s", args[0], cmd.CommandPath(), list("or"))
		}
		return fmt.Errorf("want one of %s %s", cmd.CommandPath(), list("and"))
	}
}
