package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/scheduler/explain"
	"github.com/coracle-io/coracle/internal/supervise"
)

// dryRun is coracle scheduler --dry-run.
type dryRun struct {
	scheduler *component.Scheduler
	client    *genericclioptions.ConfigFlags
	enabled   bool
	files     []string
	output    string
	in        io.Reader
	out       io.Writer
}

func schedulerCommand() *cobra.Command {
	s := component.NewScheduler()
	// Only the flags that do not identify the scheduler itself.
	all := genericclioptions.NewConfigFlags(false)
	d := &dryRun{scheduler: s, client: &genericclioptions.ConfigFlags{Context: all.Context, Namespace: all.Namespace, Impersonate: all.Impersonate, ImpersonateGroup: all.ImpersonateGroup}}
	var cmd *cobra.Command
	cmd = componentCommand("scheduler", "Assign pods to nodes", "coracle scheduler --kubeconfig=/etc/kubernetes/scheduler.conf\n  coracle scheduler --dry-run -f pods.yaml", func(fs *pflag.FlagSet) {
		s.AddFlags(fs)
		d.addFlags(fs)
	}, func(ctx context.Context) error {
		if !d.enabled {
			if len(d.files) > 0 {
				return errors.New("--filename needs --dry-run")
			}
			return s.Run(ctx)
		}
		d.in, d.out = cmd.InOrStdin(), cmd.OutOrStdout()
		return d.run(ctx)
	})
	return cmd
}

func (d *dryRun) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&d.enabled, "dry-run", false, "say where the pods of --filename would go, write nothing, and exit: with 1 if a pod would have no place")
	fs.StringSliceVarP(&d.files, "filename", "f", nil, "with --dry-run: files with pods, Deployments and other workloads, such as pods.yaml; - is the standard input")
	fs.StringVarP(&d.output, "output", "o", "", "with --dry-run: output format: json or yaml, or text if it is empty")
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	d.client.AddFlags(own)
	own.VisitAll(func(f *pflag.Flag) { f.Usage = "with --dry-run: " + f.Usage })
	fs.AddFlagSet(own)
}

func (d *dryRun) run(ctx context.Context) error {
	if err := checkOutput(d.output); err != nil {
		return err
	}
	if len(d.files) == 0 {
		return errors.New("--dry-run: say with --filename which pods")
	}
	objects, err := readManifests(ctx, d.in, "--filename", d.files)
	if err != nil {
		return err
	}
	if file := d.scheduler.Configuration.ClientConnection.Kubeconfig; file != "" {
		d.client.KubeConfig = &file
	}
	if d.scheduler.Master != "" {
		d.client.APIServer = &d.scheduler.Master
	}
	config, err := d.client.ToRESTConfig()
	if err != nil {
		return err
	}
	namespace, _, err := d.client.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	kube, err := readingClient(config)
	if err != nil {
		return err
	}
	o := explain.Options{Kubernetes: kube}
	if o.Configuration, err = d.scheduler.Resolve(ctx, kube); err != nil {
		return err
	}
	admission, err := explain.NewAdmission(ctx, kube, namespace)
	if err != nil {
		return err
	}
	manifest, err := admission.Manifest(objects)
	if err != nil {
		return err
	}
	if len(manifest.Pods) == 0 {
		return errors.New("--filename: there are no pods or workloads in it")
	}
	if o.Cluster, err = explain.Load(ctx, kube); err != nil {
		return err
	}
	o.Cluster.Refused = append(o.Cluster.Refused, admission.Refused...)
	return supervise.Run(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		result, err := explain.Dry(ctx, o, manifest)
		if err != nil {
			return err
		}
		if err := write(d.out, d.output, result); err != nil {
			return err
		}
		if result.Placed < len(manifest.Pods) {
			return errReported
		}
		return nil
	})
}
