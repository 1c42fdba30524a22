package all_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	migrationapi "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// A migration writes every object of a resource, those that are stored as they should
// be without effect. One of a resource that is never served fails.
func TestStorageVersionMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		for i := range 3 {
			if _, err := c.CoreV1().Secrets("shop").Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		versions := func() string {
			list, err := c.CoreV1().Secrets("shop").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, s := range list.Items {
				all = append(all, fmt.Sprintf("%s at %s with %d managers", s.Name, s.ResourceVersion, len(s.ManagedFields)))
			}
			return strings.Join(all, ", ")
		}
		before := versions()
		migrations := c.StoragemigrationV1().StorageVersionMigrations()
		for _, resource := range []string{"secrets", "sails"} {
			if _, err := migrations.Create(ctx, &migrationapi.StorageVersionMigration{
				ObjectMeta: metav1.ObjectMeta{Name: resource}, Spec: migrationapi.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: resource}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		conditions := func() string {
			list, err := migrations.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, m := range list.Items {
				for _, condition := range m.Status.Conditions {
					all = append(all, fmt.Sprintf("%s %s=%s %s", m.Name, condition.Type, condition.Status, condition.Reason))
				}
			}
			slices.Sort(all)
			return strings.Join(all, "\n")
		}
		controllertest.Eventually(t, conditions, strings.Join([]string{
			"sails Failed=True StorageVersionMigrationFailed",
			"secrets Running=False StorageVersionMigrationInProgress",
			"secrets Succeeded=True StorageVersionMigrationSucceeded",
		}, "\n"))
		if after := versions(); after != before {
			t.Errorf("%s, before %s", after, before)
		}
	})
}
