// Package errorlist turns lists of errors into one error of bounded size. A
// body of 3 MiB can contain hundreds of thousands of invalid values. The time to
// join their messages grows with the square of their number, and each message
// may repeat a large value.
package errorlist

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of the errors that are reported one by one: their number, and the
// bytes of their messages.
const (
	MaxErrors = 1000
	maxBytes  = 4 << 20
)

// Invalid is apierrors.NewInvalid with at most MaxErrors of the given errors.
// The message says how many errors it omits.
func Invalid(kind schema.GroupKind, name string, all field.ErrorList) *apierrors.StatusError {
	count, bytes := 0, 0
	for count < len(all) && count < MaxErrors && (count == 0 || bytes < maxBytes) {
		bytes += len(all[count].Error())
		count++
	}
	err := apierrors.NewInvalid(kind, name, all[:count])
	if count < len(all) {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more", len(all)-count)
	}
	return err
}

// Aggregate is utilerrors.NewAggregate with at most MaxErrors of the given
// errors. It returns nil if there are none.
func Aggregate(all []error) error {
	if len(all) > MaxErrors {
		all = append(all[:MaxErrors:MaxErrors], fmt.Errorf("and %d more", len(all)-MaxErrors))
	}
	if joined := utilerrors.NewAggregate(all); joined != nil {
		return joined
	}
	return nil
}
