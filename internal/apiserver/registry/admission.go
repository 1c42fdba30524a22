package registry

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/resource"
)

// Admitter passes one write through admission. Plugins see hub objects.
// Plugins that need the served version convert with the object interfaces.
type Admitter struct {
	q         *Request
	ctx       context.Context
	operation admission.Operation
	options   runtime.Object
	dryRun    bool
	nameless  bool // the write is one of a collection
	skip      bool // admission has already seen the write that causes this one
}

// Admitter returns an Admitter for one write of the request.
func (q *Request) Admitter(operation admission.Operation, options runtime.Object, dryRun bool) *Admitter {
	return &Admitter{q: q, operation: operation, options: options, dryRun: dryRun}
}

// AdmissionContext returns a context with the values that admission plugins
// read from it.
func (q *Request) AdmissionContext() context.Context {
	ctx := apirequest.WithRequestInfo(q.Context, &q.Info)
	ctx = apirequest.WithUser(ctx, q.User)
	ctx = apirequest.WithNamespace(ctx, q.Info.Namespace)
	if q.Registry.callsWebhooks() {
		var tracked bool
		if q.WebhookLatency, tracked = apirequest.LatencyTrackersFrom(ctx); !tracked {
			ctx = apirequest.WithLatencyTrackers(ctx)
			q.WebhookLatency, _ = apirequest.LatencyTrackersFrom(ctx)
		}
	}
	if q.Warnings == nil {
		return ctx
	}
	return warning.WithWarningRecorder(ctx, q.Warnings)
}

// callsWebhooks reports whether there are admission webhooks.
func (g *Registry) callsWebhooks() bool {
	for _, kind := range g.webhooks {
		if kind.Snapshot().Len() > 0 {
			return true
		}
	}
	return false
}

func (g *Admitter) context() context.Context {
	if g.ctx == nil {
		g.ctx = g.q.AdmissionContext()
	}
	return g.ctx
}

func (g *Admitter) attributes(obj, old runtime.Object, name string) admission.Attributes {
	q := g.q
	namespace := q.Info.Namespace
	if q.Endpoint.Resource.IsNamespace && namespace == "" {
		namespace = name
	}
	if g.nameless {
		name = ""
	}
	kind := q.Endpoint.GVK()
	if q.Subresource != nil && !q.Subresource.Kind.Empty() {
		kind = q.Subresource.Kind
	}
	return admission.NewAttributesRecord(obj, old, kind, namespace, name, q.Endpoint.GVR(), q.Info.Subresource, g.operation, g.options, g.dryRun, q.User)
}

// Mutate calls the mutating plugins, which may change obj. old is nil except
// for updates.
func (g *Admitter) Mutate(obj, old runtime.Object, name string) error {
	m, ok := g.q.Registry.Admission.(admission.MutationInterface)
	if !ok || g.skip || !m.Handles(g.operation) {
		return g.q.Context.Err()
	}
	ctx, began := g.context(), g.sinceRequest()
	err := g.yielding(func() error { return m.Admit(ctx, g.attributes(obj, old, name), g.q.Registry) })
	g.observe(metrics.Pass{Operation: string(g.operation), Rejected: err != nil}, began)
	return err
}

// Validate calls the validating plugins, which may refuse obj.
func (g *Admitter) Validate(obj, old runtime.Object, name string) error {
	v, ok := g.q.Registry.Admission.(admission.ValidationInterface)
	if !ok || g.skip || !v.Handles(g.operation) {
		return g.q.Context.Err()
	}
	ctx, began := g.context(), g.sinceRequest()
	err := g.yielding(func() error { return v.Validate(ctx, g.attributes(obj, old, name), g.q.Registry) })
	g.observe(metrics.Pass{Validate: true, Operation: string(g.operation), Rejected: err != nil}, began)
	return err
}

// yielding calls pass, which may wait for webhooks. It yields the request's
// compute slot while pass runs. It returns the error of the request's context
// if that has ended.
func (g *Admitter) yielding(pass func() error) error {
	if err := g.q.Context.Err(); err != nil {
		return err
	}
	resume := compute.Yield(g.q.Context)
	err := pass()
	if ended := resume(); err == nil {
		err = ended
	}
	return err
}

func (g *Admitter) sinceRequest() time.Duration { return g.q.Registry.Clock.Since(g.q.Now) }

// observe records the time that a step of admission took. began is the time
// from the start of the request to the start of the step.
func (g *Admitter) observe(p metrics.Pass, began time.Duration) {
	g.q.Registry.Metrics.Admission.Step(p, g.sinceRequest()-began)
}

// admitDeletion calls the plugins for the deletion of an object.
func (g *Admitter) admitDeletion(old resource.Object, name string) error {
	if err := g.Mutate(nil, old, name); err != nil {
		return err
	}
	return g.Validate(nil, old, name)
}
