package version

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	componentversion "k8s.io/component-base/version"
)

func TestClientHasThisVersion(t *testing.T) {
	if err := SetClient(); err != nil {
		t.Fatal(err)
	}
	if got := componentversion.Get(); got.GitVersion != Kubernetes || got.Major != major || got.Minor != minor || strings.Contains(got.String()+got.GitCommit, "Format") {
		t.Errorf("kubectl calls itself %+v", got)
	}
	if agent := rest.DefaultKubernetesUserAgent(); !strings.Contains(agent, "/"+Kubernetes+" ") || strings.Contains(agent, "Format") {
		t.Errorf("kubectl's requests come from %s", agent)
	}
}
