package apiserver

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/resource"
)

// gate passes one write through admission. Plugins see hub objects; those
// that need the served version convert through the object interfaces.
type gate struct {
	q         *request
	ctx       context.Context
	operation admission.Operation
	options   runtime.Object
	dryRun    bool
	nameless  bool // the write is one of a collection
	skip      bool // the write follows from one that has been admitted
}

func (q *request) gate(operation admission.Operation, options runtime.Object, dryRun bool) *gate {
	return &gate{q: q, operation: operation, options: options, dryRun: dryRun}
}

func (g *gate) context() context.Context {
	if g.ctx == nil {
		g.ctx = g.q.admissionContext()
	}
	return g.ctx
}

func (g *gate) attributes(obj, old runtime.Object, name string) admission.Attributes {
	q := g.q
	namespace := q.info.Namespace
	if q.endpoint.resource.Plural == "namespaces" && q.endpoint.resource.Group == "" && namespace == "" {
		namespace = name
	}
	if g.nameless {
		name = ""
	}
	kind := q.endpoint.gvk()
	if q.sub != nil && !q.sub.Kind.Empty() {
		kind = q.sub.Kind
	}
	return admission.NewAttributesRecord(obj, old, kind, namespace, name, q.endpoint.gvr(), q.info.Subresource, g.operation, g.options, g.dryRun, q.user)
}

// mutate lets admission change obj; old is nil except for updates.
func (g *gate) mutate(obj, old runtime.Object, name string) error {
	m, ok := g.q.server.Admission.(admission.MutationInterface)
	if !ok || g.skip || !m.Handles(g.operation) {
		return g.q.ctx.Err()
	}
	ctx, began := g.context(), g.q.server.Clock.Since(g.q.now)
	err := g.waiting(func() error { return m.Admit(ctx, g.attributes(obj, old, name), g.q.server) })
	g.passed(metrics.Pass{Operation: g.operation, Rejected: err != nil}, began)
	return err
}

// validate lets admission refuse obj.
func (g *gate) validate(obj, old runtime.Object, name string) error {
	v, ok := g.q.server.Admission.(admission.ValidationInterface)
	if !ok || g.skip || !v.Handles(g.operation) {
		return g.q.ctx.Err()
	}
	ctx, began := g.context(), g.q.server.Clock.Since(g.q.now)
	err := g.waiting(func() error { return v.Validate(ctx, g.attributes(obj, old, name), g.q.server) })
	g.passed(metrics.Pass{Validate: true, Operation: g.operation, Rejected: err != nil}, began)
	return err
}

// waiting passes the write through plugins, which may wait for webhooks, while
// others compute. A request whose time is over goes no further.
func (g *gate) waiting(pass func() error) error {
	if err := g.q.ctx.Err(); err != nil {
		return err
	}
	resume := compute.Waiting(g.q.ctx)
	err := pass()
	if ended := resume(); err == nil {
		err = ended
	}
	return err
}

// passed counts a way through all plugins that began so long after the request.
func (g *gate) passed(p metrics.Pass, began time.Duration) {
	g.q.server.Metrics.Admission.Step(p, g.q.server.Clock.Since(g.q.now)-began)
}

// admitDeletion lets admission refuse the deletion of an object.
func (g *gate) admitDeletion(old resource.Object, name string) error {
	if err := g.mutate(nil, old, name); err != nil {
		return err
	}
	return g.validate(nil, old, name)
}
