package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// alwaysDeny refuses every write.
type alwaysDeny struct{ always }

func (alwaysDeny) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return refused(a, "admission control is denying all modifications")
}

func (p alwaysDeny) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.Admit(ctx, a, o)
}
