package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
)

// ownerState is the state of an owner of an object.
type ownerState int

const (
	solid                ownerState = iota // exists
	waitingForDependents                   // is being deleted in the foreground
	dangling                               // does not exist
)

// decision says whether to delete an object or change its owner references.
type decision struct {
	// delete is the propagation policy for the deletion; empty means not to delete.
	delete metav1.DeletionPropagation
	// keep lists the owner references to keep; nil means to change none.
	keep []metav1.OwnerReference
}

// plan decides what to do with an object, given the states of its owners. If an owner
// is solid, the object is kept and loses the references to the other owners. Otherwise
// it is deleted: in the foreground if it has dependents and an owner waits for it, or
// with the policy that its finalizers request.
func plan(meta metav1.Object, owners []ownerState, hasDependents bool) decision {
	refs := meta.GetOwnerReferences()
	if len(refs) == 0 {
		return decision{}
	}
	if slices.Contains(owners, solid) {
		var keep []metav1.OwnerReference
		for i, ref := range refs {
			if owners[i] == solid {
				keep = append(keep, ref)
			}
		}
		if len(keep) == len(refs) {
			return decision{}
		}
		return decision{keep: keep}
	}
	switch {
	case slices.Contains(owners, waitingForDependents) && hasDependents,
		slices.Contains(meta.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return decision{delete: metav1.DeletePropagationForeground}
	case slices.Contains(meta.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return decision{delete: metav1.DeletePropagationOrphan}
	}
	return decision{delete: metav1.DeletePropagationBackground}
}

// attemptToDelete applies plan to an object.
func (c *collector) attemptToDelete(ctx context.Context, o object) error {
	meta := c.monitors.cached(o)
	if meta == nil {
		return nil
	}
	if meta.GetDeletionTimestamp() != nil && !c.graph.isDeletingDependents(o.uid) {
		return nil
	}
	refs := meta.GetOwnerReferences()
	owners := make([]ownerState, len(refs))
	for i, ref := range refs {
		s, err := c.ownerState(ctx, o, meta, ref)
		if errors.Is(err, errBadReference) {
			return nil
		}
		if err != nil {
			return err
		}
		owners[i] = s
	}
	next := plan(meta, owners, len(c.graph.dependentsOf(o.uid)) > 0)
	log := klog.FromContext(ctx).WithValues("object", klog.KRef(o.namespace, o.name), "resource", o.resource.GroupResource().String())
	switch {
	case next.keep != nil:
		log.V(2).Info("Removing dangling owner references")
		return c.setOwners(ctx, o, meta, next.keep)
	case next.delete == "" || meta.GetDeletionTimestamp() != nil:
		return nil
	}
	version := meta.GetResourceVersion()
	if next.delete == metav1.DeletePropagationForeground && c.mayBeInCycle(o) {
		log.V(2).Info("Object may be in a cycle of owners, unblocking the deletion of its owners")
		unblocked, err := c.unblock(ctx, o, meta)
		if err != nil {
			return controller.IgnoreNotFound(err)
		}
		version = unblocked.GetResourceVersion()
	}
	log.V(2).Info("Deleting object", "propagationPolicy", next.delete)
	err := c.client(o).Delete(ctx, o.name, metav1.DeleteOptions{
		PropagationPolicy: &next.delete,
		Preconditions:     &metav1.Preconditions{UID: &o.uid, ResourceVersion: &version},
	})
	return controller.IgnoreNotFound(err)
}

// mayBeInCycle reports whether a dependent of an object is already being deleted in the
// foreground. The dependent may also be an owner of the object, and then each would wait
// for the other forever.
func (c *collector) mayBeInCycle(o object) bool {
	return slices.ContainsFunc(c.graph.dependentsOf(o.uid), func(d dependent) bool { return c.graph.isDeletingDependents(d.uid) })
}

// unblock removes blockOwnerDeletion from the owner references of an object.
func (c *collector) unblock(ctx context.Context, o object, meta metav1.Object) (metav1.Object, error) {
	refs := slices.Clone(meta.GetOwnerReferences())
	for i := range refs {
		refs[i].BlockOwnerDeletion = nil
	}
	return c.patch(ctx, o, meta, "ownerReferences", refs)
}

// errBadReference is the error for an owner reference that can never be valid. The
// collector does not change objects with such references.
var errBadReference = errors.New("invalid owner reference")

// ownerState returns the state of an owner of an object. If the monitors do not have the
// owner, it asks the API server. It returns an error for owners of kinds that are not
// served now, because such owners may exist.
func (c *collector) ownerState(ctx context.Context, o object, meta metav1.Object, ref metav1.OwnerReference) (ownerState, error) {
	kind, served, ok := c.monitors.resolve(ref)
	if !ok {
		return 0, errUnknownKind(o, ref)
	}
	owner := object{resource: kind.Resource, name: ref.Name, uid: ref.UID}
	if kind.Namespaced {
		if o.namespace == "" {
			c.reportInvalidNamespace(o, meta, ref)
			return 0, errBadReference
		}
		owner.namespace = o.namespace
	}
	switch {
	case c.graph.isAbsent(owner):
		return dangling, nil
	case !served:
		return 0, errUnknownKind(o, ref)
	case c.monitors.cached(owner) != nil:
		if c.graph.isDeletingDependents(ref.UID) {
			return waitingForDependents, nil
		}
		return solid, nil
	}
	fresh, err := c.client(owner).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case isObjectMissing(err), err == nil && fresh.UID != ref.UID:
		if c.monitors.inOtherNamespace(owner) {
			// Do not mark the owner as absent, so that each of its dependents is
			// reported.
			c.reportInvalidNamespace(o, meta, ref)
			return dangling, nil
		}
		c.graph.markAbsent(owner)
		return dangling, nil
	case err != nil:
		return 0, fmt.Errorf("getting owner %s: %w", describe(ref), err)
	case fresh.DeletionTimestamp != nil && slices.Contains(fresh.Finalizers, metav1.FinalizerDeleteDependents):
		return waitingForDependents, nil
	}
	return solid, nil
}

func errUnknownKind(o object, ref metav1.OwnerReference) error {
	return fmt.Errorf("%s %s/%s has an owner of unknown kind %s %s", o.resource.Resource, o.namespace, o.name, ref.APIVersion, ref.Kind)
}

// isObjectMissing reports whether an error means that an object does not exist. It
// returns false if the resource is not served, which is also reported as not found.
func isObjectMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// deleteDependents enqueues the dependents of an object that is being deleted in the
// foreground. If none of them blocks its deletion, it removes the finalizer.
func (c *collector) deleteDependents(ctx context.Context, o object) error {
	meta := c.monitors.cached(o)
	if meta == nil || !slices.Contains(meta.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		return nil
	}
	blocked := false
	for _, d := range c.graph.dependentsOf(o.uid) {
		blocked = blocked || d.blocks
		c.queue.Add(task{attemptToDelete, d.object})
	}
	if blocked {
		return nil
	}
	return c.removeFinalizer(ctx, o, meta, metav1.FinalizerDeleteDependents)
}

// orphanDependents removes the references to an object from its dependents, and then
// the finalizer from the object.
func (c *collector) orphanDependents(ctx context.Context, o object) error {
	meta := c.monitors.cached(o)
	if meta == nil || !slices.Contains(meta.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		return nil
	}
	var errs []error
	for _, d := range c.graph.dependentsOf(o.uid) {
		child := c.monitors.cached(d.object)
		if child == nil {
			continue
		}
		keep := slices.DeleteFunc(slices.Clone(child.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.UID == o.uid })
		errs = append(errs, c.setOwners(ctx, d.object, child, keep))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("orphaning the dependents of %s %s/%s: %w", o.resource.Resource, o.namespace, o.name, err)
	}
	return c.removeFinalizer(ctx, o, meta, metav1.FinalizerOrphanDependents)
}

// setOwners replaces the owner references of an object. It fails with a conflict if the
// object has changed since meta.
func (c *collector) setOwners(ctx context.Context, o object, meta metav1.Object, refs []metav1.OwnerReference) error {
	_, err := c.patch(ctx, o, meta, "ownerReferences", append([]metav1.OwnerReference{}, refs...))
	return controller.IgnoreNotFound(err)
}

func (c *collector) removeFinalizer(ctx context.Context, o object, meta metav1.Object, finalizer string) error {
	keep := slices.DeleteFunc(append([]string{}, meta.GetFinalizers()...), func(f string) bool { return f == finalizer })
	_, err := c.patch(ctx, o, meta, "finalizers", keep)
	return controller.IgnoreNotFound(err)
}

// patch sets a field of the metadata. It fails with a conflict if the object has changed
// since meta.
func (c *collector) patch(ctx context.Context, o object, meta metav1.Object, field string, value any) (metav1.Object, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.uid, "resourceVersion": meta.GetResourceVersion(), field: value,
	}})
	if err != nil {
		return nil, err
	}
	return c.client(o).Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{})
}

func (c *collector) client(o object) metadata.ResourceInterface {
	if o.namespace == "" {
		return c.metadata.Resource(o.resource)
	}
	return c.metadata.Resource(o.resource).Namespace(o.namespace)
}

// reportInvalidNamespace records an event about a reference to an owner in another
// namespace, which is not allowed.
func (c *collector) reportInvalidNamespace(o object, meta metav1.Object, ref metav1.OwnerReference) {
	apiVersion, kind := c.monitors.kindOf(o.resource).ToAPIVersionAndKind()
	about := &v1.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: meta.GetResourceVersion(),
	}
	c.env.Events.Eventf(about, v1.EventTypeWarning, "OwnerRefInvalidNamespace",
		"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		ref.APIVersion, ref.Kind, o.namespace, ref.Name, ref.UID, o.namespace)
}

func describe(ref metav1.OwnerReference) string {
	return fmt.Sprintf("[%s/%s, name: %s, uid: %s]", ref.APIVersion, ref.Kind, ref.Name, ref.UID)
}
