package storagemigration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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

// dropStoredVersions writes that all objects of a custom resource are stored in its storage
// version, so that its earlier versions can be removed from the definition. before is the
// definition as it was before all objects were written, or nil. If it has changed since then,
// objects may be stored in another version, and dropStoredVersions does nothing.
func (c *migrator) dropStoredVersions(ctx context.Context, resource schema.GroupResource, before *unstructured.Unstructured) error {
	if before == nil {
		return nil
	}
	now, err := c.definition(ctx, resource)
	if err != nil || now == nil || now.GetUID() != before.GetUID() || now.GetGeneration() != before.GetGeneration() {
		return err
	}
	stored, _, _ := unstructured.NestedStringSlice(now.Object, "status", "storedVersions")
	version := storageVersion(now)
	if len(stored) < 2 || !slices.Contains(stored, version) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": now.GetUID(), "resourceVersion": now.GetResourceVersion()},
		"status":   map[string]any{"storedVersions": []string{version}},
	})
	if err != nil {
		return err
	}
	_, err = c.env.Client.Dynamic.Resource(definitions).Patch(ctx, now.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err = controller.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("writing the stored versions of %s: %w", resource, err)
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
