// Package component has the command line of each component, with upstream's
// flags and defaults, and runs the component: alone in a process over HTTPS, or
// inside a cluster in one process. The API server is in package
// component/apiserver.
package component

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/leader"
	"github.com/coracle-io/coracle/internal/controllers/all"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// ControllerManager runs all controllers while it holds the leader lease.
type ControllerManager struct {
	Kubeconfig string
	// Master is the URL of the API server instead of the one in the kubeconfig.
	Master  string
	Serving base.Serving
	Leader  leader.Options
	// RootCAFile is the file with the CA certificates by which pods verify the
	// API server. RootCA has them, in PEM, if there is no file.
	RootCAFile string
	RootCA     []byte
	// Options are the options that several controllers share, and the options of
	// controllers whose flags are not beside them.
	Options all.Options
	// Enabled are the controllers to run; see controller.Select.
	Enabled []string

	controllers   []controller.Descriptor
	featureGates  []string
	cloudProvider string
	logging       base.Logging
	ignored       *pflag.FlagSet
}

// NewControllerManager returns upstream's defaults.
func NewControllerManager() *ControllerManager {
	m := &ControllerManager{
		Serving: base.NewServing(10257),
		Leader:  leader.Options{Configuration: leader.DefaultConfiguration("kube-controller-manager")},
		Options: all.DefaultOptions(),
		Enabled: []string{"*"},
		logging: base.NewLogging(),
		ignored: ignoredControllerFlags(),
	}
	m.controllers = all.Controllers(&m.Options)
	return m
}

// AddFlags binds the flags to fs.
func (m *ControllerManager) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&m.Kubeconfig, "kubeconfig", m.Kubeconfig, "kubeconfig file for the API server")
	addMasterFlag(fs, &m.Master)
	m.Serving.AddFlags(fs)
	fs.BoolVar(&m.Serving.Profiling, "profiling", m.Serving.Profiling, base.ProfilingUsage)
	fs.StringVar(&m.RootCAFile, "root-ca-file", m.RootCAFile, "root certificate authority published to pods in the ConfigMap kube-root-ca.crt")
	flagvalue.Is(fs, flagvalue.File, "kubeconfig", "root-ca-file")
	controller.AddFlags(fs, &m.Enabled, m.controllers)
	fs.StringSliceVar(&m.featureGates, "feature-gates", m.featureGates, "feature gates as Name=true; most of them have an effect at the API server only, whose gates decide what controllers may do")
	fs.StringVar(&m.cloudProvider, "cloud-provider", m.cloudProvider, "external, or empty; neither has an effect, because no cloud provider is built in")
	m.logging.AddFlags(fs)
	fs.AddFlagSet(m.ignored)
	bindFields(fs, &m.Leader.Configuration, leaderElectionFields(""))
	leaderElectionKinds(fs)
}

// Validate returns all errors in the flags.
func (m *ControllerManager) Validate() error {
	_, err := controller.Select(m.controllers, m.Enabled)
	_, gatesErr := feature.Parse(m.featureGates)
	errs := []error{err, leader.Validate(&m.Leader.Configuration), gatesErr, m.logging.Validate()}
	if m.cloudProvider != "" && m.cloudProvider != "external" {
		errs = append(errs, fmt.Errorf("--cloud-provider=%s: no cloud provider is built in: use external", m.cloudProvider))
	}
	for _, d := range m.controllers {
		if d.Validate != nil {
			errs = append(errs, d.Validate())
		}
	}
	return errors.Join(errs...)
}

// asked reports whether controllers ask about a feature gate.
func asked(gate feature.Gate) bool {
	switch gate {
	case feature.DRADeviceTaints, feature.DRADeviceTaintRules, feature.DRAPartitionableDevicesType, feature.DRAResourcePoolStatus,
		feature.HPAGeneration, feature.HPAScaleToZero, feature.InPlacePodLevelResourcesVerticalScaling, feature.PersistentVolumeClaimUnusedSinceTime,
		feature.PodDeletionCost, feature.PodLevelResources, feature.StaleControllerConsistencyHPA, feature.StorageVersionAPI:
		return true
	}
	return false
}

// warnings returns a message for each given flag and feature gate without effect.
func (m *ControllerManager) warnings() []string {
	gates, err := feature.Parse(m.featureGates)
	if err != nil {
		return nil // Validate reports it
	}
	all := gates.Warnings()
	for _, gate := range slices.Sorted(maps.Keys(gates.Named())) {
		if !asked(gate) && feature.HasEffect(gate) {
			all = append(all, fmt.Sprintf("--feature-gates: %s has no effect here: set it at the API server", gate))
		}
	}
	return append(all, warningsOf(m.ignored)...)
}

// Run runs the controllers in a process of their own.
func (m *ControllerManager) Run(ctx context.Context) error {
	if err := m.Validate(); err != nil {
		return err
	}
	provider, err := base.Remote(m.Master, m.Kubeconfig, "kube-controller-manager")
	if err != nil {
		return err
	}
	return m.RunWith(ctx, provider)
}

// RunWith runs the controllers with clients of the given provider, and their
// health server.
func (m *ControllerManager) RunWith(ctx context.Context, provider client.Provider) error {
	m.logging.Apply(ctx)
	c := base.NewCounts(ctx)
	provider, err := c.Of(provider)
	if err != nil {
		return err
	}
	gates, err := feature.Parse(m.featureGates)
	if err != nil {
		return err
	}
	own, err := provider.As("system:kube-controller-manager", "system:authenticated")
	if err != nil {
		return err
	}
	rootCA, err := m.rootCA()
	if err != nil {
		return err
	}
	for _, w := range m.warnings() {
		klog.FromContext(ctx).Info(w)
	}
	flags := base.FlagValuesOf(m.AddFlags)
	election := m.Leader
	election.Observe = c.Leads
	serving := m.Serving
	serving.Checks = election.AddHealth()
	runner := controller.Runner{Provider: provider, Controllers: m.controllers, Enabled: m.Enabled, RootCA: rootCA, Queues: c.Queues, Metrics: c.Registry, Features: gates}
	return base.Together(ctx,
		provider.Run,
		func(ctx context.Context) error { return leader.Run(ctx, election, own.Kubernetes, runner.Run) },
		func(ctx context.Context) error { return serving.Run(ctx, "kube-controller-manager", own, flags, c) },
	)
}

func (m *ControllerManager) rootCA() ([]byte, error) {
	if m.RootCAFile == "" {
		return m.RootCA, nil
	}
	pem, err := os.ReadFile(m.RootCAFile)
	if err != nil {
		return nil, fmt.Errorf("--root-ca-file: %w", err)
	}
	return pem, nil
}
