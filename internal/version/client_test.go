package version

import (
	"testing"

	componentversion "k8s.io/component-base/version"
)

func TestClientHasThisVersion(t *testing.T) {
	if err := SetClient(); err != nil {
		t.Fatal(err)
	}
	if got := componentversion.Get(); got.GitVersion != Kubernetes || got.Major != major || got.Minor != minor {
		t.Errorf("kubectl calls itself %+v", got)
	}
}
