package storagemigration

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	migrationapi "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// When all objects have been written, only the storage version is stored, unless the definition
// has changed meanwhile. A condition says how it went.
func TestDropStoredVersions(t *testing.T) {
	const (
		updated = "MigrationSucceeded: The migration has succeeded and the stored versions have been updated"
		kept    = "MigrationSucceeded: The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	)
	for name, c := range map[string]struct {
		stored          []any
		changed, failed bool
		want            []string
		message         string
	}{
		"of two":         {[]any{"v1alpha1", "v1"}, false, false, []string{"v1"}, updated},
		"only one":       {[]any{"v1"}, false, false, []string{"v1"}, updated},
		"changed":        {[]any{"v1alpha1", "v1"}, true, false, []string{"v1alpha1", "v1"}, kept},
		"not stored yet": {[]any{"v1alpha1", "v1beta1"}, false, false, []string{"v1alpha1", "v1beta1"}, kept},
		"failed":         {[]any{"v1alpha1", "v1"}, false, true, []string{"v1alpha1", "v1"}, "MigrationFailed: The migration has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			oars := schema.GroupResource{Group: "example.com", Resource: "oars"}
			definition := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": "oars.example.com", "uid": "u", "generation": int64(2)},
				"spec": map[string]any{"versions": []any{
					map[string]any{"name": "v1alpha1", "storage": false}, map[string]any{"name": "v1", "storage": true},
				}},
				"status": map[string]any{"storedVersions": c.stored, "conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
			}}
			fake := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{definitions: "CustomResourceDefinitionList"}, definition)
			m := &migrator{env: &controller.Env{Client: &client.Client{Dynamic: fake}}}
			before, err := m.definition(t.Context(), oars)
			if err != nil || before == nil {
				t.Fatal(before, err)
			}
			condition := func(want string) {
				t.Helper()
				now, err := m.definition(t.Context(), oars)
				if err != nil {
					t.Fatal(err)
				}
				conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
				if len(conditions) != 2 {
					t.Fatalf("conditions %v", conditions)
				}
				c, _ := conditions[1].(map[string]any)
				if got := fmt.Sprintf("%v %v %v %v: %v", c["type"], c["status"], c["observedGeneration"], c["reason"], c["message"]); got != want {
					t.Errorf("the condition is %q, want %q", got, want)
				}
			}
			if err := m.announce(t.Context(), "tidy", before); err != nil {
				t.Fatal(err)
			}
			condition("StorageMigrating True 2 MigrationRunning: Migration tidy is running")
			if c.changed {
				before.SetGeneration(1)
			}
			if err := m.finish(t.Context(), oars, before, !c.failed); err != nil {
				t.Fatal(err)
			}
			condition("StorageMigrating False 2 " + c.message)
			after, err := fake.Resource(definitions).Get(t.Context(), "oars.example.com", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedStringSlice(after.Object, "status", "storedVersions"); !slices.Equal(got, c.want) {
				t.Errorf("stored versions %v, want %v", got, c.want)
			}
		})
	}
}

// The condition of a definition does not stay true when its migration is deleted before
// its end, unless another one is to come.
func TestMigrationIsDeleted(t *testing.T) {
	migration := func(name string, condition migrationapi.MigrationConditionType) *migrationapi.StorageVersionMigration {
		return &migrationapi.StorageVersionMigration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       migrationapi.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: "example.com", Resource: "oars"}},
			Status:     migrationapi.StorageVersionMigrationStatus{Conditions: []metav1.Condition{{Type: string(condition), Status: metav1.ConditionTrue}}},
		}
	}
	const running, failed = "True MigrationRunning: Migration tidy is running", "False MigrationFailed: The migration has failed"
	for name, c := range map[string]struct {
		deleted, other migrationapi.MigrationConditionType
		want           string
	}{
		"running":                       {migrationapi.MigrationRunning, migrationapi.MigrationSucceeded, failed},
		"running, and another one, too": {migrationapi.MigrationRunning, migrationapi.MigrationRunning, running},
		"ended":                         {migrationapi.MigrationSucceeded, migrationapi.MigrationSucceeded, running},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := controllertest.New(t, migration("tidy", c.deleted), migration("other", c.other))
				cluster.Fake.Resources = []*metav1.APIResourceList{{
					GroupVersion: "storagemigration.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "storageversionmigrations", Kind: "StorageVersionMigration"}},
				}}
				definition := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "oars.example.com"},
					"status": map[string]any{"conditions": []any{map[string]any{
						"type": "StorageMigrating", "status": "True", "reason": "MigrationRunning", "message": "Migration tidy is running",
					}}},
				}}
				fake := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
					map[schema.GroupVersionResource]string{definitions: "CustomResourceDefinitionList"}, definition)
				cluster.Env.Client.Dynamic = fake
				cluster.Run(controller.Descriptor{New: func(env *controller.Env) (controller.Controller, error) { return newMigrator(env, nil), nil }})
				synctest.Wait() // oars are not served yet
				if err := cluster.Fake.StoragemigrationV1().StorageVersionMigrations().Delete(t.Context(), "tidy", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				after, err := fake.Resource(definitions).Get(t.Context(), "oars.example.com", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				conditions, _, _ := unstructured.NestedSlice(after.Object, "status", "conditions")
				if len(conditions) != 1 {
					t.Fatalf("conditions %v", conditions)
				}
				now, _ := conditions[0].(map[string]any)
				if got := fmt.Sprintf("%v %v: %v", now["status"], now["reason"], now["message"]); got != c.want {
					t.Errorf("the condition is %q, want %q", got, c.want)
				}
			})
		})
	}
}
