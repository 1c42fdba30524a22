package status

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// IgnoreRace returns nil for the errors of a write that another API server has
// preceded, and other errors unchanged. All servers write the same, or look again.
func IgnoreRace(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
