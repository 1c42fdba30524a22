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

// Gate passes one write through admission. Plugins see hub objects; those
// that need the served version convert through the object interfaces.
type Gate struct {
	q         *Request
	ctx       context.Context
	operation admission.Operation
	options   runtime.Object
	dryRun    bool
	nameless  bool // the write is one of a collection
	skip      bool // the write follows from one that has been admitted
}

// Gate returns the way through admission for one write of the request.
func (q *Request) Gate(operation admission.Operation, options runtime.Object, dryRun bool) *Gate {
	return &Gate{q: q, operation: operation, options: options, dryRun: dryRun}
}

// AdmissionContext carries what admission plugins look for in a context.
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

// callsWebhooks says that users have webhooks for admission.
func (g *Registry) callsWebhooks() bool {
	for _, kind := range g.webhooks {
		if kind.Snapshot().Len() > 0 {
			return true
		}
	}
	return false
}

func (g *Gate) context() context.Context {
	if g.ctx == nil {
		g.ctx = g.q.AdmissionContext()
	}
	return g.ctx
}

func (g *Gate) attributes(obj, old runtime.Object, name string) admission.Attributes {
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

// Mutate lets admission change obj; old is nil except for updates.
func (g *Gate) Mutate(obj, old runtime.Object, name string) error {
	m, ok := g.q.Registry.Admission.(admission.MutationInterface)
	if !ok || g.skip || !m.Handles(g.operation) {
		return g.q.Context.Err()
	}
	ctx, began := g.context(), g.sinceRequest()
	err := g.waiting(func() error { return m.Admit(ctx, g.attributes(obj, old, name), g.q.Registry) })
	g.passed(metrics.Pass{Operation: g.operation, Rejected: err != nil}, began)
	return err
}

// Validate lets admission refuse obj.
func (g *Gate) Validate(obj, old runtime.Object, name string) error {
	v, ok := g.q.Registry.Admission.(admission.ValidationInterface)
	if !ok || g.skip || !v.Handles(g.operation) {
		return g.q.Context.Err()
	}
	ctx, began := g.context(), g.sinceRequest()
	err := g.waiting(func() error { return v.Validate(ctx, g.attributes(obj, old, name), g.q.Registry) })
	g.passed(metrics.Pass{Validate: true, Operation: g.operation, Rejected: err != nil}, began)
	return err
}

// waiting passes the write through plugins, which may wait for webhooks, while
// others compute. A request whose time is over goes no further.
func (g *Gate) waiting(pass func() error) error {
	if err := g.q.Context.Err(); err != nil {
		return err
	}
	resume := compute.Waiting(g.q.Context)
	err := pass()
	if ended := resume(); err == nil {
		err = ended
	}
	return err
}

func (g *Gate) sinceRequest() time.Duration { return g.q.Registry.Clock.Since(g.q.Now) }

// passed counts a way through all plugins that began so long after the request.
func (g *Gate) passed(p metrics.Pass, began time.Duration) {
	g.q.Registry.Metrics.Step(p, g.sinceRequest()-began)
}

// admitDeletion lets admission refuse the deletion of an object.
func (g *Gate) admitDeletion(old resource.Object, name string) error {
	if err := g.Mutate(nil, old, name); err != nil {
		return err
	}
	return g.Validate(nil, old, name)
}
