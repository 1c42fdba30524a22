// Package flowschemas watches FlowSchemas and priority levels (KEP-1040). It
// maintains the condition Dangling of each schema, which says whether the
// schema's level exists, and notifies the classifier of requests of changes.
package flowschemas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// consumer is the field manager of the condition, producer the field manager of
// the default schemas.
const (
	consumer = "api-priority-and-fairness-config-consumer-v1"
	producer = "api-priority-and-fairness-config-producer-v1"
)

// retry is how long to wait after a failed write of a condition.
const retry = 5 * time.Second

// Watcher maintains the conditions. Fields are required unless their comment
// says otherwise.
type Watcher struct {
	Cache    *watchcache.Cache
	Managers registry.FieldManagers
	Clock    clock.PassiveClock
	// Classify is called with all objects after each change, if it is set. The
	// objects are the cache's and must not be changed.
	Classify func([]*flowcontrolv1.FlowSchema, []*flowcontrolv1.PriorityLevelConfiguration)
}

// Notify calls Classify with the current objects. The cache must be synced.
func (w *Watcher) Notify() {
	if w.Classify == nil {
		return
	}
	cached := objects.Cache{Cache: w.Cache}
	w.Classify(
		slices.Collect(objects.Of[*flowcontrolv1.FlowSchema](cached, objects.FlowSchemas).All("")),
		slices.Collect(objects.Of[*flowcontrolv1.PriorityLevelConfiguration](cached, objects.PriorityLevels).All("")))
}

// Run syncs all FlowSchemas whenever one of them or a priority level changes,
// until ctx ends. The cache must be synced.
func (w *Watcher) Run(ctx context.Context) error {
	schemas := w.Cache.At(objects.FlowSchemas)
	levels := w.Cache.At(objects.PriorityLevels)
	if schemas == nil || levels == nil {
		return errors.New("flow schemas and priority levels are not among the resources")
	}
	changed := make(chan struct{}, 1)
	g, ctx := supervise.WithContext(ctx)
	for _, kind := range []*watchcache.Kind{schemas, levels} {
		g.Go(func() error { return watchKind(ctx, kind, changed) })
	}
	g.Go(func() error {
		again := time.NewTimer(0)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			case <-again.C:
			}
			done := false
			_ = recovery.Call(ctx, "syncing the FlowSchemas", func() error {
				w.Notify()
				done = w.sync(ctx, schemas, levels)
				return nil
			})
			if !done {
				again.Reset(retry)
			}
		}
	})
	return g.Wait()
}

// watchKind sends to changed after each change of a kind. changed is buffered for
// one.
func watchKind(ctx context.Context, kind *watchcache.Kind, changed chan<- struct{}) error {
	for ctx.Err() == nil {
		cursor, err := kind.Watch(kind.Snapshot().Revision)
		for err == nil {
			select {
			case changed <- struct{}{}:
			default:
			}
			_, _, err = cursor.Next(ctx, nil)
		}
		if errors.Is(err, watchcache.ErrRemoved) {
			return err
		}
	}
	return nil
}

// sync writes the conditions that are missing or wrong. It returns false if a
// write failed.
func (w *Watcher) sync(ctx context.Context, schemas, levels *watchcache.Kind) (ok bool) {
	var all []*watchcache.Entry
	schemas.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		all = append(all, e)
		return true
	})
	ok = true
	for _, e := range all {
		schema := e.Object.(*flowcontrolv1.FlowSchema)
		_, found := levels.Get("", schema.Spec.PriorityLevelConfiguration.Name)
		condition := dangling(schema, found, w.Clock.Now())
		if condition == nil {
			continue
		}
		err := w.write(ctx, schemas, schema, condition)
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot write the status of a FlowSchema, will try again", "flowSchema", e.Name, "in", retry)
			ok = false
		}
	}
	return ok
}

// dangling returns the condition that a schema should have, or nil if it has
// it.
func dangling(s *flowcontrolv1.FlowSchema, found bool, now time.Time) *flowcontrolv1.FlowSchemaCondition {
	level := s.Spec.PriorityLevelConfiguration.Name
	want := flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level),
	}
	if !found {
		want.Status, want.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		want.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)
	}
	for _, c := range s.Status.Conditions {
		if c.Type != want.Type {
			continue
		}
		if c.Status == want.Status {
			want.LastTransitionTime = c.LastTransitionTime
		}
		if c == want {
			return nil
		}
	}
	if want.LastTransitionTime.IsZero() {
		want.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	}
	return &want
}

// write applies the condition to the status of a schema. It skips a schema that
// has changed since s was read, because the event of that change causes another
// sync.
func (w *Watcher) write(ctx context.Context, schemas *watchcache.Kind, s *flowcontrolv1.FlowSchema, c *flowcontrolv1.FlowSchemaCondition) error {
	r := schemas.Resource()
	applied := map[string]any{
		"apiVersion": r.Hub().GroupVersion.String(), "kind": r.Kind,
		"metadata": map[string]any{"name": s.Name},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": string(c.Type), "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
		}}},
	}
	writer := registry.Writer{Managers: w.Managers, Clock: w.Clock}
	return writer.UpdateUnchecked(ctx, schemas, "", s.Name, func(live resource.Object) (resource.Object, error) {
		if live.GetResourceVersion() != s.ResourceVersion {
			return nil, nil
		}
		if len(live.GetManagedFields()) == 0 {
			live = live.DeepCopyObject().(resource.Object)
			if err := w.Managers.Update(registry.ManagedKind{Resource: r, Version: r.Hub()}, nil, live, producer); err != nil {
				return nil, err
			}
		}
		return w.Managers.Apply(registry.ManagedKind{Resource: r, Version: r.Hub(), Subresource: "status"}, live, applied, consumer, true)
	})
}
