package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/host"
)

// nameFlag adds the flag --name of a command to fs, which is the command's
// local or persistent flag set.
func nameFlag(cmd *cobra.Command, fs *pflag.FlagSet, name *string) {
	fs.StringVar(name, "name", host.DefaultName, "name of the cluster")
	completeName(cmd)
}

// completeName makes shells complete --name, which cmd has.
func completeName(cmd *cobra.Command) {
	// It fails only for a command without the flag, or for a second call.
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("name", completeNames))
}

// nameArgument makes a command take the name of a cluster as its argument or
// with --name.
func nameArgument(cmd *cobra.Command, name *string) {
	nameFlag(cmd, cmd.Flags(), name)
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 || cmd.Flags().Changed("name") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeNames(cmd, args, begin)
	}
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if cmd.Flags().Changed("name") && *name != args[0] {
			return fmt.Errorf("--name=%s and the argument %s: give one of the two", *name, args[0])
		}
		*name = args[0]
		return nil
	}
}

// completeNames returns the names of the clusters on this machine for a shell.
// There are none if the user may not read the records.
func completeNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, _ := host.NewRegistry(host.Root()).Names() // a shell cannot show an error
	return slices.Clone(names), cobra.ShellCompDirectiveNoFileComp
}
