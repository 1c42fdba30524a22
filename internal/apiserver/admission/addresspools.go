package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/addresspool"
)

// addressPools refuses wrong pools of addresses for Services.
type addressPools struct{ onWrite }

func (addressPools) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, "", "configmaps", "") {
		return nil
	}
	config, err := typed[*corev1.ConfigMap](a, a.GetObject())
	if err != nil || !addresspool.IsConfig(config) {
		return err
	}
	if _, errs := addresspool.Parse(config.Data); len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), config.Name, errs)
	}
	return nil
}
