package controller

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// IgnoreNotFound returns nil for an error that says that the object is gone, and
// other errors unchanged.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// IgnoreNotFoundOrConflict is IgnoreNotFound for writes with a precondition: a
// conflict says that the object is another one, or has changed.
func IgnoreNotFoundOrConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return IgnoreNotFound(err)
}
