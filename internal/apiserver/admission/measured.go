package admission

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/metrics"
)

// measure returns a plugin that measures the time of the given one. It
// implements the same interfaces.
func measure(plugin admission.Interface, m *metrics.Plugin) admission.Interface {
	_, mutates := plugin.(admission.MutationInterface)
	_, validates := plugin.(admission.ValidationInterface)
	base := measured{plugin, m}
	switch {
	case mutates && validates:
		return measuredBoth{measuredMutation{base}, measuredValidation{base}}
	case mutates:
		return measuredMutation{base}
	case validates:
		return measuredValidation{base}
	}
	return plugin
}

type measured struct {
	admission.Interface
	metrics *metrics.Plugin
}

func (m measured) observe(p metrics.Pass, began time.Time) { m.metrics.Observe(p, time.Since(began)) }

type measuredMutation struct{ measured }

// Admit implements admission.MutationInterface.
func (m measuredMutation) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	began := time.Now()
	err := m.Interface.(admission.MutationInterface).Admit(ctx, a, o)
	m.observe(metrics.Pass{Operation: string(a.GetOperation()), Rejected: err != nil}, began)
	return err
}

type measuredValidation struct{ measured }

// Validate implements admission.ValidationInterface.
func (m measuredValidation) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	began := time.Now()
	err := m.Interface.(admission.ValidationInterface).Validate(ctx, a, o)
	m.observe(metrics.Pass{Validate: true, Operation: string(a.GetOperation()), Rejected: err != nil}, began)
	return err
}

type measuredBoth struct {
	measuredMutation
	measuredValidation
}

// Handles implements admission.Interface.
func (m measuredBoth) Handles(op admission.Operation) bool { return m.measuredMutation.Handles(op) }
