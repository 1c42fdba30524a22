package localvolume

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// Each node keeps of the claims of the cluster what its provisioner uses.
func TestReducedClaims(t *testing.T) {
	p := New(Config{NodeName: "n", Dir: "/volumes"})
	long := strings.Repeat("x", 100_000)
	bound := func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "pvc-1234"
		c.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}
	}
	for name, test := range map[string]struct {
		change           func(c *v1.PersistentVolumeClaim)
		requested, grows bool
	}{
		"requested":             {func(*v1.PersistentVolumeClaim) {}, true, false},
		"of another node":       {func(c *v1.PersistentVolumeClaim) { c.Annotations[volume.AnnSelectedNode] = long }, false, false},
		"of another driver":     {func(c *v1.PersistentVolumeClaim) { c.Annotations[volume.AnnStorageProvisioner] = long }, false, false},
		"of no class":           {func(c *v1.PersistentVolumeClaim) { c.Annotations[v1.BetaStorageClassAnnotation] = long }, true, false},
		"that is not supported": {func(c *v1.PersistentVolumeClaim) { c.Spec.DataSourceRef = &v1.TypedObjectReference{Name: "other"} }, true, false},
		"bound":                 {bound, false, false},
		"that grows": {func(c *v1.PersistentVolumeClaim) {
			bound(c)
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("2Gi")
		}, false, true},
	} {
		claim := requesting("n", func(c *v1.PersistentVolumeClaim) {
			c.Annotations["long"], c.Labels = long, map[string]string{"long": long}
			c.Spec.AccessModes = slices.Repeat(c.Spec.AccessModes, 1000)
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"long": long}}
			test.change(c)
		})
		obj, err := p.reduce(claim)
		if err != nil {
			t.Fatal(err)
		}
		kept := obj.(*v1.PersistentVolumeClaim)
		if n := kept.Size(); n > 1000 {
			t.Errorf("of a claim %s, %d bytes are kept: %v", name, n, kept)
		}
		if kept.UID != "1234" || p.requested(claim) != test.requested || p.requested(kept) != test.requested || grows(claim) != test.grows || grows(kept) != test.grows {
			t.Errorf("a claim %s is kept as %v", name, kept)
		}
		if got, want := fmt.Sprint(supported(kept, class(nil))), fmt.Sprint(supported(claim, class(nil))); test.requested && got != want {
			t.Errorf("a claim %s: %s, want %s", name, got, want)
		}
	}
}

// A claim that the provisioner writes keeps what the provisioner does not.
func TestWrittenClaimIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startOn(t, &limits{size: 10 << 30}, filepath.Join(t.TempDir(), "volumes"), class(waiting), requesting("n", func(c *v1.PersistentVolumeClaim) {
			c.Labels, c.Annotations["note"] = map[string]string{"app": "db"}, "kept"
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("50Gi")
		}))
		get := func() *v1.PersistentVolumeClaim {
			claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return claim
		}
		controllertest.Eventually(t, func() bool { _, selected := get().Annotations[volume.AnnSelectedNode]; return selected }, false)
		if claim := get(); claim.Labels["app"] != "db" || claim.Annotations["note"] != "kept" || claim.Annotations[volume.AnnStorageProvisioner] != Name {
			t.Errorf("the claim became %v", claim.ObjectMeta)
		}
	})
}
