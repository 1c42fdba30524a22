package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/explain"
	"github.com/coracle-io/coracle/internal/why"
)

// whyFlags are the flags of coracle why.
type whyFlags struct {
	client     *genericclioptions.ConfigFlags
	whatIf     []string
	config     string
	output     string
	scheduling bool
}

func whyCommand() *cobra.Command {
	f := &whyFlags{client: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "why pod/NAME",
		Short: "Say why a pod is pending, not ready, restarted or evicted",
		Long: `Say why a pod is in the state that it is in, and what would help.

For a pod without a node, the plugins of the scheduler are asked about each node
of the cluster as it is now: why not, or with which score. For a pod on a node,
the reasons are in its conditions, its containers and its events; if nothing is
wrong, or with --scheduling, the scores say why it is where it is.

With --what-if the decision is repeated with the nodes and pods of a file that
replace those with the same names. Nothing is written to the cluster, and nothing
is read that the user of the kubeconfig may not read.

The scheduler's configuration is that of --scheduler-config, or of the cluster if
it was started by coracle up on this machine, or else the default.`,
		Example: `  coracle why pod/web
  coracle why pod/web -n shop -o json
  coracle why pod/web --what-if node.yaml`,
		GroupID: "cluster",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args)
		},
	}
	f.client.AddFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&f.whatIf, "what-if", nil, "files with nodes and pods that replace those with the same names, such as node.yaml; - is the standard input")
	cmd.Flags().StringVar(&f.config, "scheduler-config", "", "file with the scheduler's KubeSchedulerConfiguration")
	addOutputFlag(cmd.Flags(), &f.output)
	cmd.Flags().BoolVar(&f.scheduling, "scheduling", false, "show the scheduler's scores for a pod that has other problems, too")
	return cmd
}

func (f *whyFlags) run(ctx context.Context, in io.Reader, out io.Writer, args []string) error {
	name, err := podName(args)
	if err == nil {
		err = checkOutput(f.output)
	}
	if err != nil {
		return err
	}
	o := why.Options{Name: name, Scheduling: f.scheduling}
	if o.WhatIf, err = readManifests(ctx, in, "--what-if", f.whatIf); err != nil {
		return err
	}
	config, err := f.client.ToRESTConfig()
	if err != nil {
		return err
	}
	if o.Namespace, _, err = f.client.ToRawKubeConfigLoader().Namespace(); err != nil {
		return err
	}
	if o.Kubernetes, err = readingClient(config); err != nil {
		return err
	}
	if o.Configuration, o.ConfigurationOf, err = f.schedulerConfiguration(ctx, o.Kubernetes, config.Host); err != nil {
		return err
	}
	report, err := why.Pod(ctx, o)
	if err != nil {
		return err
	}
	return write(out, f.output, report)
}

// podName reads "pod/NAME", "pod NAME" or "NAME".
func podName(args []string) (string, error) {
	kind, name, split := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2 && !split:
		name = args[1]
	case len(args) == 2:
		return "", fmt.Errorf("%s: want one pod, such as pod/NAME", strings.Join(args, " "))
	case !split:
		kind, name = "pod", args[0]
	}
	if !slices.Contains([]string{"pod", "pods", "po"}, strings.ToLower(kind)) {
		return "", fmt.Errorf("%s: coracle why supports only pods, such as pod/NAME", strings.Join(args, " "))
	}
	if name == "" {
		return "", fmt.Errorf("%s: want the name of a pod, such as pod/NAME", strings.Join(args, " "))
	}
	return name, nil
}

// readManifests reads the objects of files. The file "-" stands for in.
func readManifests(ctx context.Context, in io.Reader, flag string, files []string) (objects []runtime.Object, err error) {
	left := int64(explain.MaxManifest)
	for _, file := range files {
		data, err := interruptible(ctx, func() ([]byte, error) { return readManifest(in, file, left) })
		if errors.Is(err, errInterrupted) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", flag, file, err)
		}
		left -= int64(len(data))
		decoded, err := explain.Decode(data)
		if err == nil && len(decoded) == 0 {
			err = errors.New("it contains no Kubernetes object")
		}
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", flag, file, err)
		}
		objects = append(objects, decoded...)
	}
	return objects, nil
}

func readManifest(in io.Reader, file string, most int64) ([]byte, error) {
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }() // it is only read
		in = opened
	}
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("more than %d MiB", explain.MaxManifest>>20)
	}
	return data, err
}

// readingClient returns a client that cannot write.
func readingClient(config *rest.Config) (kubernetes.Interface, error) {
	config = explain.ReadOnly(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	if config.Dial == nil {
		const patience = 10 * time.Second
		config.Dial = (&net.Dialer{Timeout: patience}).DialContext
	}
	return kubernetes.NewForConfig(config)
}

// schedulerConfiguration returns the configuration of a cluster's scheduler as
// far as this machine knows it, and where it is from.
func (f *whyFlags) schedulerConfiguration(ctx context.Context, kube kubernetes.Interface, server string) (config.Configuration, string, error) {
	s, arguments, of := component.NewScheduler(), []string(nil), "the default"
	if f.config != "" {
		arguments, of = []string{"config=" + f.config}, f.config
	} else if settings, ok := clusterAt(server); ok && len(settings.Options.SchedulerArgs) > 0 {
		arguments, of = settings.Options.SchedulerArgs, "cluster "+settings.Options.Name
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddFlags(flags)
	if err := base.Set("scheduler", flags, arguments); err != nil {
		return config.Configuration{}, "", err
	}
	configuration, err := s.Resolve(ctx, kube)
	if err != nil {
		return config.Configuration{}, "", fmt.Errorf("configuration of the scheduler (%s): %w", of, err)
	}
	return configuration, of, nil
}

// clusterAt returns the settings of the cluster of this machine whose API server
// has a URL. Clusters that this user may not see are left out.
func clusterAt(server string) (host.Settings, bool) {
	records, err := host.NewRegistry(host.Root()).List(warn)
	if err != nil {
		return host.Settings{}, false
	}
	i := slices.IndexFunc(records, func(rec host.Record) bool { return rec.Server == server })
	if i < 0 {
		return host.Settings{}, false
	}
	return host.SettingsIn(records[i].DataDir, records[i].Name)
}
