package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"

	"github.com/coracle-io/coracle/internal/version"
)

// kubectlCommand runs kubectl, which is part of the binary.
func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl",
		Short:              "Run the built-in kubectl",
		GroupID:            "cluster",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			os.Args = append([]string{"kubectl"}, args...)
			if err := version.SetClient(); err != nil {
				return err
			}
			inner := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
				PluginHandler: kubectl.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
				Arguments:     os.Args,
				ConfigFlags:   genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50),
				IOStreams:     genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
			})
			inner.SetArgs(args)
			// Most of kubectl's commands end by the default action of a signal, which
			// main has replaced.
			signal.Reset(os.Interrupt, syscall.SIGTERM)
			return inner.ExecuteContext(cmd.Context())
		},
	}
}
