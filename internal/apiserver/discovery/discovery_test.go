package discovery

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// Hashes that upstream's servers publish.
func TestStorageHash(t *testing.T) {
	resources := map[schema.GroupResource]*resource.Resource{}
	for _, r := range all.All() {
		resources[schema.GroupResource{Group: r.Group, Resource: r.Plural}] = r
	}
	for of, want := range map[schema.GroupResource]string{
		{Resource: "pods"}:                                           "xPOwRZ+Yhw8=",
		{Resource: "services"}:                                       "0/CO1lhkEBI=",
		{Group: "apps", Resource: "deployments"}:                     "8aSe+NMegvE=",
		{Group: "autoscaling", Resource: "horizontalpodautoscalers"}: "qwQve8ut294=",
	} {
		if got := storageHash(resources[of]); got != want {
			t.Errorf("%s: storage hash %s, want %s", of, got, want)
		}
	}
}
