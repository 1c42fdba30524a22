package crd

import (
	"context"
	"errors"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// clean removes the instances of a deleted definition, and then the definition,
// in the background.
func (s *Server) clean(ctx context.Context, kind *watchcache.Kind, crd *apiextensionsv1.CustomResourceDefinition) {
	if crd.DeletionTimestamp == nil || !apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) || s.cleanups[crd.UID] {
		return
	}
	s.cleanups[crd.UID] = true
	c := &cleanup{server: s, definitions: kind, crd: crd}
	if d := s.served[crd.Name]; d != nil && d.uid == crd.UID {
		c.instances = s.Cache.Kind(d.stored)
	}
	s.wait.Go(ctx, func() {
		for ctx.Err() == nil {
			err := recovery.Call(ctx, "removing definition "+crd.Name, func() error { return c.run(ctx) })
			if err == nil || ctx.Err() != nil {
				return
			}
			klog.FromContext(ctx).Error(err, "Cannot remove the objects of a deleted custom resource definition yet", "definition", crd.Name, "again", cleanupRetry)
			supervise.Pause(ctx, cleanupRetry)
		}
	})
}

const cleanupRetry = time.Second

// cleanup is the termination of one definition.
type cleanup struct {
	server      *Server
	definitions *watchcache.Kind
	crd         *apiextensionsv1.CustomResourceDefinition
	instances   *watchcache.Kind // nil if the definition was never served
}

func terminating(status apiextensionsv1.ConditionStatus, reason, message string) apiextensionsv1.CustomResourceDefinitionCondition {
	return apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Terminating, Status: status, Reason: reason, Message: message}
}

func (c *cleanup) run(ctx context.Context) error {
	done := terminating(apiextensionsv1.ConditionFalse, "NeverEstablished", "resource was never established")
	if c.instances != nil {
		done = terminating(apiextensionsv1.ConditionFalse, "InstanceDeletionCompleted", "removed all instances")
		progress := terminating(apiextensionsv1.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
		if err := c.updateStatus(ctx, progress, false); err != nil {
			return err
		}
		if err := c.removeInstances(ctx); err != nil && !errors.Is(err, watchcache.ErrRemoved) {
			return err
		}
	}
	return c.updateStatus(ctx, done, true)
}

// removeInstances deletes all instances and waits until the last is gone.
func (c *cleanup) removeInstances(ctx context.Context) error {
	for {
		if _, err := c.server.Cache.Fresh(ctx); err != nil {
			return err
		}
		snapshot := c.instances.Snapshot()
		if snapshot.Len() == 0 {
			return nil
		}
		var failed error
		snapshot.Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
			failed = c.removeInstance(ctx, e)
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		cursor, err := c.instances.Watch(snapshot.Revision)
		if err != nil {
			return err
		}
		if _, _, err = cursor.Next(ctx, nil); err != nil {
			return err
		}
	}
}

// removeInstance deletes an object, or marks it as deleted if it has
// finalizers.
func (c *cleanup) removeInstance(ctx context.Context, e *watchcache.Entry) error {
	if len(e.Object.GetFinalizers()) > 0 && e.Object.GetDeletionTimestamp() != nil {
		return nil // it waits for its finalizers
	}
	err := c.server.writer().Delete(ctx, c.instances, e.Namespace, e.Name, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// updateStatus sets the condition of the cleanup. If finished, it removes the
// finalizer; the definition is deleted with its last finalizer.
func (c *cleanup) updateStatus(ctx context.Context, condition apiextensionsv1.CustomResourceDefinitionCondition, finished bool) error {
	condition.LastTransitionTime = resource.Seconds(c.server.Clock.Now())
	return c.server.update(ctx, c.definitions, c.crd.Name, func(current resource.Object) (resource.Object, error) {
		next := current.(*apiextensionsv1.CustomResourceDefinition).DeepCopy()
		if next.UID != c.crd.UID {
			return nil, nil
		}
		apihelpers.SetCRDCondition(next, condition)
		if finished {
			apihelpers.CRDRemoveFinalizer(next, apiextensionsv1.CustomResourceCleanupFinalizer)
		}
		return next, nil
	})
}
