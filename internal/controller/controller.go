// Package controller runs controllers. A controller watches objects through
// shared informers, compares them with the desired state and writes the
// difference.
//
//	leader.Run ──▶ Runner.Run ──▶ one goroutine tree per controller
//	                                 Descriptor.New(env) ──▶ Controller.Run(ctx)
//	                                        ▲                    │ error or panic
//	                                        └──── back-off ◀─────┘
//
// A controller consists of Sources (what to watch, and which keys an event
// enqueues), a Queue (the keys to reconcile) and a sync function. Serve
// registers the Sources, runs the workers of the Queue and cleans up at the end.
package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/metrics"
)

// Controller is a control loop. Run blocks until ctx is done and then returns
// nil. If Run returns earlier, the Runner builds and runs a new instance. No
// goroutine of the controller outlives Run.
type Controller interface {
	Run(ctx context.Context) error
}

// Func is a function that implements Controller.
type Func func(ctx context.Context) error

// Run calls f.
func (f Func) Run(ctx context.Context) error { return f(ctx) }

// Descriptor describes a controller: its name, its identity, its flags and its
// constructor.
type Descriptor struct {
	// Name is the controller's name in --controllers.
	Name string
	// Aliases are older names that --controllers also accepts.
	Aliases []string
	// ServiceAccount names the service account in kube-system that sends the
	// controller's requests. If it is empty, they are sent by the controller
	// manager itself.
	ServiceAccount string
	// EventSource is the component named in the controller's events.
	EventSource string
	// OffByDefault is true for controllers that run only if --controllers names
	// them.
	OffByDefault bool
	// AddFlags, if not nil, adds the controller's own flags, with upstream's
	// names. The current values are the defaults. Instances built by New after
	// the flags are parsed use the parsed values.
	AddFlags func(fs *pflag.FlagSet)
	// Validate, if not nil, returns an error if the value of a flag is invalid.
	Validate func() error
	// New builds an instance. It must not block and must not start goroutines.
	New func(env *Env) (Controller, error)
}

// Env is the environment of a controller instance.
type Env struct {
	// Client sends requests as the controller's identity.
	Client *client.Client
	// Events records events with Descriptor.EventSource as their source.
	Events record.EventRecorder
	// RootCA is the PEM bundle that pods use to verify the API server. If it is
	// nil, pods use the bundle that Client uses.
	RootCA []byte
	// Queues shows the metrics of the controller's work queues. It may be nil.
	Queues *metrics.Queues
	// Metrics exposes other metrics of controllers; see Expose. It may be nil.
	Metrics prometheus.Registerer
	// Features are the feature gates of the controller manager; nil has the defaults.
	Features *feature.Set

	ctx context.Context // of the running instance; nil in tests
}

// Metadata returns a metadata client with the controller's identity. It does
// not log the API server's warnings, because controllers that handle all kinds
// also handle deprecated ones.
func (e *Env) Metadata() (metadata.Interface, error) {
	config := rest.CopyConfig(e.Client.Config)
	config.WarningHandler = rest.NoWarnings{}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client: %w", err)
	}
	return objects, nil
}

// Expose exposes metrics of the controller. They may be those that an earlier
// instance has exposed.
func (e *Env) Expose(collectors ...prometheus.Collector) error {
	if e.Metrics == nil {
		return nil
	}
	for _, c := range collectors {
		err := e.Metrics.Register(c)
		if exposed := (prometheus.AlreadyRegisteredError{}); err != nil && !errors.As(err, &exposed) {
			return fmt.Errorf("exposing metrics: %w", err)
		}
	}
	return nil
}

// identity returns the user and groups of the controller's requests.
func (d *Descriptor) identity() (user string, groups []string) {
	if d.ServiceAccount == "" {
		return "system:kube-controller-manager", []string{"system:authenticated"}
	}
	return serviceAccountUser(d.ServiceAccount), serviceAccountGroups()
}

// serviceAccountUser returns the user name of a service account in kube-system.
func serviceAccountUser(name string) string {
	return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + name
}

// serviceAccountGroups returns the groups of every service account in
// kube-system.
func serviceAccountGroups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + metav1.NamespaceSystem, "system:authenticated"}
}
