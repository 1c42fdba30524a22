// Package faults bounds what clients are told of what is wrong. A body of 3 MiB
// has room for hundreds of thousands of faults; putting them into one message
// takes time with the square of their number, and each may repeat a large
// value.
package faults

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Most is how many faults are told, and mostBytes how many bytes they take.
const (
	Most      = 1000
	mostBytes = 4 << 20
)

// Invalid says all that is wrong with an object, as far as it is told.
func Invalid(kind schema.GroupKind, name string, all field.ErrorList) *apierrors.StatusError {
	told, bytes := 0, 0
	for told < len(all) && told < Most && (told == 0 || bytes < mostBytes) {
		bytes += len(all[told].Error())
		told++
	}
	err := apierrors.NewInvalid(kind, name, all[:told])
	if told < len(all) {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more", len(all)-told)
	}
	return err
}

// Join is utilerrors.NewAggregate of all errors, as far as they are told; nil
// if there are none.
func Join(all []error) error {
	if len(all) > Most {
		all = append(all[:Most:Most], fmt.Errorf("and %d more", len(all)-Most))
	}
	if joined := utilerrors.NewAggregate(all); joined != nil {
		return joined
	}
	return nil
}
