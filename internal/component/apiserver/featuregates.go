package apiserver

import (
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/coracle-io/coracle/internal/feature"
)

// setLibraryFeatures sets the gates of k8s.io/apiserver, which are one set for
// the process.
func setLibraryFeatures(features *feature.Set) error {
	given := features.Given()
	theirs := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if on, ok := given[string(name)]; ok {
			theirs[string(name)] = on
		}
	}
	if len(theirs) == 0 {
		return nil
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(theirs); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	return nil
}
