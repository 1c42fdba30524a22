package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// alwaysAdmit does nothing.
type alwaysAdmit struct{ always }

func (alwaysAdmit) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}
