// Command coracle is a whole Kubernetes in one binary: `coracle up` runs a
// cluster in a few processes, and each component runs alone by its own name.
package main

import (
	"context"
	"errors"
	"fmt"
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
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	root := command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, context.Canceled) {
		return 0
	}
	if errors.Is(err, errTold) {
		return 1
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintln(os.Stderr, "coracle:", line)
	}
	return 1
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
