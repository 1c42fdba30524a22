package storagemigration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	migrationapi "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definition returns the CustomResourceDefinition of a resource, or nil if it has none.
func (c *migrator) definition(ctx context.Context, resource schema.GroupResource) (*unstructured.Unstructured, error) {
	if resource.Group == "" {
		return nil, nil //nolint:nilnil // a custom resource has a group
	}
	list, err := c.env.Client.Dynamic.Resource(definitions).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + resource.String()})
	if apierrors.IsNotFound(err) || err == nil && len(list.Items) == 0 {
		return nil, nil //nolint:nilnil // it is built in, or of another server
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", resource, err)
	}
	return &list.Items[0], nil
}

// announce writes that a migration of the objects of a custom resource runs. definition
// may be nil.
func (c *migrator) announce(ctx context.Context, migration string, definition *unstructured.Unstructured) error {
	if definition == nil {
		return nil
	}
	return c.writeStatus(ctx, definition, map[string]any{
		"conditions": migrating(definition, metav1.ConditionTrue, "MigrationRunning", fmt.Sprintf("Migration %s is running", migration)),
	})
}

// finish writes that the migration of the objects of a custom resource has ended. If it has
// succeeded, finish also writes that all objects are stored in the storage version, so that
// earlier versions can be removed from the definition. before is the definition as it was
// before all objects were written, or nil. If it has changed since then, objects may be stored
// in another version.
func (c *migrator) finish(ctx context.Context, resource schema.GroupResource, before *unstructured.Unstructured, succeeded bool) error {
	if before == nil {
		return nil
	}
	now, err := c.definition(ctx, resource)
	if err != nil || now == nil || now.GetUID() != before.GetUID() {
		return err
	}
	reason, message, status := "MigrationFailed", "The migration has failed", map[string]any{}
	if succeeded {
		reason, message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
		stored, _, _ := unstructured.NestedStringSlice(now.Object, "status", "storedVersions")
		if version := storageVersion(now); now.GetGeneration() == before.GetGeneration() && slices.Contains(stored, version) {
			message = "The migration has succeeded and the stored versions have been updated"
			status["storedVersions"] = []string{version}
		}
	}
	status["conditions"] = migrating(now, metav1.ConditionFalse, reason, message)
	return c.writeStatus(ctx, now, status)
}

// leave writes that no migration of the objects of a custom resource runs, after one was
// deleted before its end. In upstream, the condition stays true.
func (c *migrator) leave(ctx context.Context, resource schema.GroupResource) error {
	for _, o := range c.informer().GetStore().List() {
		if m, ok := o.(*migrationapi.StorageVersionMigration); ok && schema.GroupResource(m.Spec.Resource) == resource && !ended(m) {
			return nil // its end writes it
		}
	}
	definition, err := c.definition(ctx, resource)
	if err != nil || definition == nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if !slices.ContainsFunc(conditions, func(o any) bool {
		condition, ok := o.(map[string]any)
		return ok && condition["type"] == storageMigrating && condition["status"] == string(metav1.ConditionTrue)
	}) {
		return nil
	}
	return c.writeStatus(ctx, definition, map[string]any{
		"conditions": migrating(definition, metav1.ConditionFalse, "MigrationFailed", "The migration has failed"),
	})
}

// storageMigrating is the condition of a definition whose objects are being migrated.
const storageMigrating = "StorageMigrating"

// migrating returns the conditions of a definition with the condition StorageMigrating.
func migrating(definition *unstructured.Unstructured, status metav1.ConditionStatus, reason, message string) []any {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	next := map[string]any{
		"type": storageMigrating, "status": string(status), "reason": reason, "message": message,
		"observedGeneration": definition.GetGeneration(), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	for i, c := range conditions {
		before, ok := c.(map[string]any)
		if !ok || before["type"] != next["type"] {
			continue
		}
		if before["status"] == next["status"] && before["lastTransitionTime"] != nil {
			next["lastTransitionTime"] = before["lastTransitionTime"]
		}
		conditions[i] = next
		return conditions
	}
	return append(conditions, next)
}

// writeStatus merges into the status of a definition, unless it has changed.
func (c *migrator) writeStatus(ctx context.Context, definition *unstructured.Unstructured, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": definition.GetUID(), "resourceVersion": definition.GetResourceVersion()},
		"status":   status,
	})
	if err != nil {
		return err
	}
	_, err = c.env.Client.Dynamic.Resource(definitions).Patch(ctx, definition.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err = controller.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("writing the status of the definition %s: %w", definition.GetName(), err)
	}
	return nil
}

// storageVersion returns the version in which objects of a definition are stored.
func storageVersion(definition *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["storage"] == true {
			name, _ := version["name"].(string)
			return name
		}
	}
	return ""
}
