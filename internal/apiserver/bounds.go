package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxCauses and maxCauseBytes bound what is told of the faults of one object.
// A body of 3 MiB has room for hundreds of thousands; putting them into one
// message takes time with the square of their number, and each may repeat a
// large value.
const (
	maxCauses     = 1000
	maxCauseBytes = 4 << 20
)

// errInvalid says all that is wrong with an object, as far as it is told.
func errInvalid(kind schema.GroupKind, name string, faults field.ErrorList) error {
	told, bytes := 0, 0
	for told < len(faults) && told < maxCauses && (told == 0 || bytes < maxCauseBytes) {
		bytes += len(faults[told].Error())
		told++
	}
	err := apierrors.NewInvalid(kind, name, faults[:told])
	if told < len(faults) {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more", len(faults)-told)
	}
	return err
}
