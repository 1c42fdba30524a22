// Package storagemigration is the storage version migrator. It writes all objects
// of a resource once, without a change, so that the API server stores them in the
// present storage version and encrypts them with the present key (KEP-4192).
//
//	StorageVersionMigration ──► Running, resourceVersion ──► every object applied ──► Succeeded or Failed
package storagemigration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	migrationapi "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "storage-version-migrator-controller",
		ServiceAccount: "storage-version-migrator-controller",
		EventSource:    "storage-version-migrator-controller",
		New: func(env *controller.Env) (controller.Controller, error) {
			objects, err := env.Metadata()
			if err != nil {
				return nil, err
			}
			return newMigrator(env, objects), nil
		},
	}
}

const (
	fieldManager = "storage-version-migrator-controller"
	// pageSize is the number of objects that are listed at a time.
	pageSize = 500
	// servedWithin is how long after the creation of a migration its resource may
	// not be served yet, as that of a new CustomResourceDefinition.
	servedWithin = time.Minute
	// retryServed is the time between two looks for such a resource.
	retryServed = 5 * time.Second
)

// Reasons of the conditions.
const (
	reasonRunning   = "StorageVersionMigrationInProgress"
	reasonSucceeded = "StorageVersionMigrationSucceeded"
	reasonFailed    = "StorageVersionMigrationFailed"
)

type migrator struct {
	env     *controller.Env
	objects metadata.Interface
	queue   *controller.Queue[string]
	// left has the resources of which a migration was deleted before its end.
	left *controller.Queue[schema.GroupResource]
}

func newMigrator(env *controller.Env, objects metadata.Interface) *migrator {
	c := &migrator{env: env, objects: objects}
	c.queue = controller.NewQueueWithMaxDelay(env.Queues, "storage_version_migrator", time.Minute, func(ctx context.Context, name string) error {
		// The informer is not requested before Run knows that migrations are served.
		return controller.Existing[string](c.informer(), c.sync)(ctx, name)
	})
	c.left = controller.NewQueueWithMaxDelay(env.Queues, "storage_version_migrator_left", time.Minute, c.leave)
	return c
}

func (c *migrator) informer() cache.SharedIndexInformer {
	return c.env.Client.Informers.Storagemigration().V1().StorageVersionMigrations().Informer()
}

// Run implements controller.Controller. It does nothing where migrations are not
// served.
func (c *migrator) Run(ctx context.Context) error {
	if served, err := c.env.WaitUnlessServed(ctx, migrationapi.SchemeGroupVersion.WithResource("storageversionmigrations")); !served {
		return err
	}
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.informer(), func(old, m *migrationapi.StorageVersionMigration) {
			switch {
			case m == nil && !ended(old):
				c.left.Add(schema.GroupResource(old.Spec.Resource))
			case m != nil && !ended(m):
				c.queue.Add(m.Name)
			}
		}),
	}, c.queue.Workers(1), c.left.Workers(1))
}

// ended reports whether a migration has succeeded or failed, which is final.
func ended(m *migrationapi.StorageVersionMigration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(migrationapi.MigrationSucceeded)) ||
		meta.IsStatusConditionTrue(m.Status.Conditions, string(migrationapi.MigrationFailed))
}

func (c *migrator) sync(ctx context.Context, m *migrationapi.StorageVersionMigration) error {
	if ended(m) || m.DeletionTimestamp != nil {
		return nil
	}
	kind, err := c.find(m)
	switch {
	case err != nil:
		return err
	case kind == nil && time.Since(m.CreationTimestamp.Time) < servedWithin:
		c.queue.AddAfter(m.Name, retryServed)
		return nil
	case kind == nil:
		return c.end(ctx, m, migrationapi.MigrationFailed, reasonFailed, fmt.Sprintf("resource %s is not served with the verbs list and patch", m.Spec.Resource.String()))
	}
	definition, err := c.definition(ctx, kind.Resource.GroupResource())
	if err != nil {
		return err
	}
	if m.Status.ResourceVersion == "" {
		return c.begin(ctx, m, kind, definition)
	}
	err = c.migrate(ctx, kind)
	if failure := (*errRefused)(nil); errors.As(err, &failure) {
		if err := c.finish(ctx, kind.Resource.GroupResource(), definition, false); err != nil {
			return err
		}
		return c.end(ctx, m, migrationapi.MigrationFailed, reasonFailed, failure.Error())
	}
	if err != nil {
		return err
	}
	if err := c.finish(ctx, kind.Resource.GroupResource(), definition, true); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Migrated a resource to its storage version", "migration", m.Name, "resource", kind.Resource)
	return c.end(ctx, m, migrationapi.MigrationSucceeded, reasonSucceeded, "")
}

// find returns the resource of a migration, or nil if it is not served or cannot be
// migrated.
func (c *migrator) find(m *migrationapi.StorageVersionMigration) (*kinds.Kind, error) {
	served, err := kinds.Served(c.env.Client.Kubernetes.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("discovering resources: %w", err)
	}
	for _, kind := range served {
		if kind.Resource.Group == m.Spec.Resource.Group && kind.Resource.Resource == m.Spec.Resource.Resource && kind.SupportsAll("list", "patch") {
			return &kind, nil
		}
	}
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(err, &failed) {
		for gv := range failed.Groups {
			if gv.Group == m.Spec.Resource.Group {
				return nil, fmt.Errorf("discovering resources: %w", err)
			}
		}
	}
	return nil, nil //nolint:nilnil // it is not served
}

// begin records that a migration runs, and the resource version at which it began.
// The event of this write continues the migration. definition is that of a custom
// resource, or nil.
func (c *migrator) begin(ctx context.Context, m *migrationapi.StorageVersionMigration, kind *kinds.Kind, definition *unstructured.Unstructured) error {
	if err := c.announce(ctx, m.Name, definition); err != nil {
		return err
	}
	list, err := c.objects.Resource(kind.Resource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("listing %s: %w", m.Spec.Resource.String(), err)
	}
	next := m.DeepCopy()
	next.Status.ResourceVersion = list.ResourceVersion
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: string(migrationapi.MigrationRunning), Status: metav1.ConditionTrue, Reason: reasonRunning, ObservedGeneration: m.Generation,
	})
	return c.updateStatus(ctx, next)
}

// end records how a migration has ended. The condition of one that has run keeps its
// reason, as in upstream. A status needs a resource version, also that of a migration
// which has not begun.
func (c *migrator) end(ctx context.Context, m *migrationapi.StorageVersionMigration, t migrationapi.MigrationConditionType, reason, message string) error {
	next := m.DeepCopy()
	next.Status.ResourceVersion = cmp.Or(m.Status.ResourceVersion, m.ResourceVersion)
	if running := meta.FindStatusCondition(next.Status.Conditions, string(migrationapi.MigrationRunning)); running != nil {
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: running.Type, Status: metav1.ConditionFalse, Reason: running.Reason, ObservedGeneration: m.Generation,
		})
	}
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: string(t), Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: m.Generation,
	})
	return c.updateStatus(ctx, next)
}

func (c *migrator) updateStatus(ctx context.Context, m *migrationapi.StorageVersionMigration) error {
	_, err := c.env.Client.Kubernetes.StoragemigrationV1().StorageVersionMigrations().UpdateStatus(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		c.left.Add(schema.GroupResource(m.Spec.Resource))
		return nil
	}
	return err
}

// errRefused is the error of an object that the API server does not let be written.
// A retry would not help.
type errRefused struct{ error }

func (e *errRefused) Unwrap() error { return e.error }

// migrate writes all objects of a resource. Objects that are created meanwhile need
// no migration, so that a list which takes longer than the API server's history lasts
// continues with the objects that there are then.
func (c *migrator) migrate(ctx context.Context, kind *kinds.Kind) error {
	next := ""
	for {
		page, err := c.objects.Resource(kind.Resource).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if token := continuation(err); token != "" {
			next = token
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind.Resource.GroupResource(), err)
		}
		for i := range page.Items {
			if err := c.write(ctx, kind, &page.Items[i]); err != nil {
				return err
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// continuation returns the token in the error of an expired list by which it
// continues, "" in other errors.
func continuation(err error) string {
	if expired := apierrors.APIStatus(nil); apierrors.IsResourceExpired(err) && errors.As(err, &expired) {
		return expired.Status().Continue
	}
	return ""
}

// write applies an empty configuration to an object. The UID and the resource
// version in it refuse an object that has changed: it has been written anyhow.
func (c *migrator) write(ctx context.Context, kind *kinds.Kind, o *metav1.PartialObjectMetadata) error {
	metadata := map[string]any{"name": o.Name, "uid": o.UID, "resourceVersion": o.ResourceVersion}
	if o.Namespace != "" {
		metadata["namespace"] = o.Namespace
	}
	configuration, err := json.Marshal(map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": metadata,
	})
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(kind.Resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.ApplyPatchType, configuration, metav1.PatchOptions{FieldManager: fieldManager})
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		err = &errRefused{err}
	}
	return fmt.Errorf("writing %s %s: %w", kind.Kind, cache.MetaObjectToName(o), err)
}
