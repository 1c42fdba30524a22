// Package controller runs controllers: small reconcilers that watch objects
// through shared informers and write what should be different.
//
//	leader.Run ──▶ Runner.Run ──▶ one goroutine tree per controller
//	                                 Descriptor.New(env) ──▶ Controller.Run(ctx)
//	                                        ▲                    │ error or panic
//	                                        └──── back-off ◀─────┘
//
// A controller is built from three parts of this package: Sources (what to
// watch, and which keys an event touches), a Queue (keys to reconcile) and a
// sync function. Serve ties them together and takes them apart again.
package controller

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/client"
)

// Controller is one control loop. Run blocks until ctx is done and returns
// nil then; any other return is a failure, after which the Runner builds and
// runs a new instance. No goroutine outlives Run.
type Controller interface {
	Run(ctx context.Context) error
}

// Func is a Controller made of a function.
type Func func(ctx context.Context) error

// Run calls f.
func (f Func) Run(ctx context.Context) error { return f(ctx) }

// Descriptor says how a controller is called, who it acts as and how to
// build one.
type Descriptor struct {
	// Name is the controller's name in --controllers.
	Name string
	// Aliases are older names that --controllers also accepts.
	Aliases []string
	// ServiceAccount in kube-system is the identity of its requests; "" is the
	// controller manager itself.
	ServiceAccount string
	// EventSource is the component that its events name.
	EventSource string
	// OffByDefault controllers run only if --controllers names them.
	OffByDefault bool
	// AddFlags, if not nil, adds the controller's own flags, with upstream's
	// names. The present values are the defaults. Instances that New builds
	// afterwards use the values of the flags.
	AddFlags func(fs *pflag.FlagSet)
	// Validate, if not nil, returns what is wrong with the values of the flags.
	Validate func() error
	// New builds an instance. It must not block and must not start anything.
	New func(env *Env) (Controller, error)
}

// Env is what a controller works with.
type Env struct {
	// Client acts as the controller's own service account.
	Client *client.Client
	// Events records events under the controller's name.
	Events record.EventRecorder
	// RootCA is the authority, PEM, by which pods trust the API server; nil is
	// the one that Client trusts.
	RootCA []byte

	life context.Context // of the instance; nil if nobody supervises it
}

// Metadata makes a client for the metadata of objects of any kind, as the
// controller. It does not log the API server's warnings: whoever handles all
// kinds handles deprecated ones too.
func (e *Env) Metadata() (metadata.Interface, error) {
	config := rest.CopyConfig(e.Client.Config)
	config.WarningHandler = rest.NoWarnings{}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client: %w", err)
	}
	return objects, nil
}

// identity is the user and the groups that a controller acts as.
func (d *Descriptor) identity() (user string, groups []string) {
	if d.ServiceAccount == "" {
		return "system:kube-controller-manager", []string{"system:authenticated"}
	}
	return serviceAccountUser(d.ServiceAccount), serviceAccountGroups()
}

// serviceAccountUser is the user name of a service account in kube-system.
func serviceAccountUser(name string) string {
	return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + name
}

// serviceAccountGroups are the groups of every service account in kube-system.
func serviceAccountGroups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + metav1.NamespaceSystem, "system:authenticated"}
}
