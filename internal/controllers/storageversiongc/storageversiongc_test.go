package storageversiongc

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func lease(name string, labels map[string]string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, Labels: labels}}
}

func storageVersion(name string, servers ...string) *internalv1alpha1.StorageVersion {
	v := &internalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, s := range servers {
		server, version, _ := strings.Cut(s, "=")
		v.Status.StorageVersions = append(v.Status.StorageVersions, internalv1alpha1.ServerStorageVersion{
			APIServerID: server, EncodingVersion: version, DecodableVersions: []string{version},
		})
	}
	return v
}

// served makes the API server serve StorageVersions.
func served(c *controllertest.Cluster) {
	c.Fake.Resources = []*metav1.APIResourceList{{
		GroupVersion: internalv1alpha1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "storageversions"}},
	}}
}

// The entries of API servers that have no Lease, or one of another component, are removed, at the
// start and when a Lease is deleted.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		identity := map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}
		c := controllertest.New(t,
			lease("a", identity), lease("b", identity), lease("other", map[string]string{"apiserver.kubernetes.io/identity": "another"}),
			storageVersion("core.pods", "a=v1", "b=v2"), storageVersion("apps.deployments", "gone=v1", "other=v1"),
			storageVersion("batch.jobs", "a=v1", "gone=v2"), storageVersion("new"),
		)
		features, err := feature.Parse([]string{string(feature.StorageVersionAPI) + "=true"})
		if err != nil {
			t.Fatal(err)
		}
		c.Env.Features = features
		served(c)
		c.Run(Descriptor())
		shown := func(name string) string {
			synctest.Wait()
			v, err := c.Fake.InternalV1alpha1().StorageVersions().Get(context.Background(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return "gone"
			}
			if err != nil {
				t.Fatal(err)
			}
			var servers []string
			for _, s := range v.Status.StorageVersions {
				servers = append(servers, s.APIServerID)
			}
			conditions := ""
			for _, condition := range v.Status.Conditions {
				conditions += " " + string(condition.Status) + " " + condition.Reason
			}
			return fmt.Sprintf("%v %s%s", servers, ptr.Deref(v.Status.CommonEncodingVersion, "none"), conditions)
		}
		for name, want := range map[string]string{
			"core.pods": "[a b] none", "apps.deployments": "gone", "batch.jobs": "[a] v1 True CommonEncodingVersionSet", "new": "[] none",
		} {
			if got := shown(name); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if err := c.Fake.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(context.Background(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"core.pods": "[b] v2 True CommonEncodingVersionSet", "batch.jobs": "gone"} {
			if got := shown(name); got != want {
				t.Errorf("after the end of a server, %s: %s, want %s", name, got, want)
			}
		}
	})
}

// Without its feature gate, the controller does nothing.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, storageVersion("apps.deployments", "gone=v1"))
		served(c)
		c.Run(Descriptor())
		synctest.Wait()
		if _, err := c.Fake.InternalV1alpha1().StorageVersions().Get(context.Background(), "apps.deployments", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// The condition keeps the time of its last transition, which is also a change of the common version.
func TestTransition(t *testing.T) {
	then, now := time.Unix(1e9, 0), time.Unix(2e9, 0)
	for name, c := range map[string]struct {
		before string
		now    []string
		want   time.Time
	}{
		"the same version":    {"v1", []string{"a=v1", "b=v1"}, then},
		"another version":     {"v2", []string{"a=v1"}, now},
		"no common one":       {"v1", []string{"a=v1", "b=v2"}, now},
		"still no common one": {"", []string{"a=v1", "b=v2"}, then},
	} {
		v := storageVersion("core.pods", c.now...)
		status := internalv1alpha1.ConditionFalse
		if c.before != "" {
			v.Status.CommonEncodingVersion, status = &c.before, internalv1alpha1.ConditionTrue
		}
		v.Status.Conditions = []internalv1alpha1.StorageVersionCondition{{
			Type: internalv1alpha1.AllEncodingVersionsEqual, Status: status, LastTransitionTime: metav1.NewTime(then),
		}}
		setCommonVersion(v, now)
		if got := v.Status.Conditions[0].LastTransitionTime.Time; !got.Equal(c.want) {
			t.Errorf("%s: the transition was at %v, want %v", name, got, c.want)
		}
	}
}
