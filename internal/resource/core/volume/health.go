package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// The limits of what a driver reports of the health of a volume.
const (
	maxHealthConditions = 16
	maxHealthReason     = 256  // bytes
	maxHealthMessage    = 1024 // bytes
)

// ValidateHealth checks the conditions that a CSI driver reports of a volume
// (KEP-1432). Status and reason together identify a condition.
func ValidateHealth(op declarative.Operation, p *field.Path, conditions, old []corev1.VolumeHealthCondition) field.ErrorList {
	return declarative.List(op, p, conditions, old,
		func(c *corev1.VolumeHealthCondition) string { return string(c.Status) + "/" + c.Reason },
		maxHealthConditions, validateHealthCondition)
}

func validateHealthCondition(op declarative.Operation, p *field.Path, c, old *corev1.VolumeHealthCondition) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &corev1.VolumeHealthCondition{}
	}
	errs := declarative.Value(op, p.Child("status"), &c.Status, &old.Status, declarative.Required,
		declarative.OneOf(corev1.VolumeHealthInaccessible, corev1.VolumeHealthDataLoss, corev1.VolumeHealthDegraded))
	errs = append(errs, declarative.Value(op, p.Child("reason"), &c.Reason, &old.Reason, declarative.Required, declarative.MaxBytes(maxHealthReason))...)
	return append(errs, declarative.Value(op, p.Child("message"), &c.Message, &old.Message, declarative.Optional, declarative.MaxBytes(maxHealthMessage))...)
}
