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
)

// standing is what is known about one owner of an object.
type standing int

const (
	solid   standing = iota // it exists
	waiting                 // it is being deleted in the foreground and waits for its dependents
	absent                  // it does not exist
)

// sentence is what has to be done with an object.
type sentence struct {
	// delete with this policy; empty is not to delete.
	delete metav1.DeletionPropagation
	// keep are the owner references to leave; nil is to change none.
	keep []metav1.OwnerReference
}

// decide says what becomes of an object by the standing of its owners: while
// one of them is solid it stays and loses the references to the others; else
// it goes. An object with dependents, whose owner waits for it, goes in the
// foreground itself. Finalizers that ask for a policy are followed.
func decide(meta metav1.Object, standings []standing, hasDependents bool) sentence {
	refs := meta.GetOwnerReferences()
	if len(refs) == 0 {
		return sentence{}
	}
	if slices.Contains(standings, solid) {
		var keep []metav1.OwnerReference
		for i, ref := range refs {
			if standings[i] == solid {
				keep = append(keep, ref)
			}
		}
		if len(keep) == len(refs) {
			return sentence{}
		}
		return sentence{keep: keep}
	}
	switch {
	case slices.Contains(standings, waiting) && hasDependents,
		slices.Contains(meta.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return sentence{delete: metav1.DeletePropagationForeground}
	case slices.Contains(meta.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return sentence{delete: metav1.DeletePropagationOrphan}
	}
	return sentence{delete: metav1.DeletePropagationBackground}
}

// judge carries out what decide says about one object.
func (c *collector) judge(ctx context.Context, o object) error {
	meta := c.monitors.cached(o)
	if meta == nil {
		return nil
	}
	if meta.GetDeletionTimestamp() != nil && !c.graph.isGoing(o.uid) {
		return nil
	}
	refs := meta.GetOwnerReferences()
	standings := make([]standing, len(refs))
	for i, ref := range refs {
		s, err := c.standing(ctx, o, meta, ref)
		if errors.Is(err, errBadReference) {
			return nil
		}
		if err != nil {
			return err
		}
		standings[i] = s
	}
	verdict := decide(meta, standings, len(c.graph.dependentsOf(o.uid)) > 0)
	log := klog.FromContext(ctx).WithValues("object", klog.KRef(o.namespace, o.name), "resource", o.resource.GroupResource().String())
	switch {
	case verdict.keep != nil:
		log.V(2).Info("Removing references to owners that are gone")
		return c.setOwners(ctx, o, meta, verdict.keep)
	case verdict.delete == "" || meta.GetDeletionTimestamp() != nil:
		return nil
	}
	version := meta.GetResourceVersion()
	if verdict.delete == metav1.DeletePropagationForeground && c.inCircle(o) {
		log.V(2).Info("Object may own its owner: it no longer blocks the deletion of its owners")
		unblocked, err := c.unblock(ctx, o, meta)
		if err != nil {
			return ignoreNotFound(err)
		}
		version = unblocked.GetResourceVersion()
	}
	log.V(2).Info("Deleting object", "propagationPolicy", verdict.delete)
	err := c.client(o).Delete(ctx, o.name, metav1.DeleteOptions{
		PropagationPolicy: &verdict.delete,
		Preconditions:     &metav1.Preconditions{UID: &o.uid, ResourceVersion: &version},
	})
	return ignoreNotFound(err)
}

// inCircle says whether a dependent of the object is being deleted in the
// foreground already: it may be an owner too, and each would wait for the
// other for ever.
func (c *collector) inCircle(o object) bool {
	return slices.ContainsFunc(c.graph.dependentsOf(o.uid), func(d dependent) bool { return c.graph.isGoing(d.uid) })
}

// unblock lets the owners of an object go before it.
func (c *collector) unblock(ctx context.Context, o object, meta metav1.Object) (metav1.Object, error) {
	refs := slices.Clone(meta.GetOwnerReferences())
	for i := range refs {
		refs[i].BlockOwnerDeletion = nil
	}
	return c.patch(ctx, o, meta, "ownerReferences", refs)
}

// errBadReference marks an owner reference that can never be right. Its
// object is left alone.
var errBadReference = errors.New("invalid owner reference")

// standing finds out about one owner of an object: from the watch if it was
// seen there, else from the API server. Nothing can be said, but that is an
// error to try again, of owners of kinds that are not served now: they may
// exist.
func (c *collector) standing(ctx context.Context, o object, meta metav1.Object, ref metav1.OwnerReference) (standing, error) {
	kind, served, ok := c.monitors.resolve(ref)
	if !ok {
		return 0, errUnknownKind(o, ref)
	}
	owner := object{resource: kind.Resource, name: ref.Name, uid: ref.UID}
	if kind.Namespaced {
		if o.namespace == "" {
			c.reportMisplaced(o, meta, ref)
			return 0, errBadReference
		}
		owner.namespace = o.namespace
	}
	switch {
	case c.graph.isGone(owner):
		return absent, nil
	case !served:
		return 0, errUnknownKind(o, ref)
	case c.monitors.cached(owner) != nil:
		if c.graph.isGoing(ref.UID) {
			return waiting, nil
		}
		return solid, nil
	}
	fresh, err := c.client(owner).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case isObjectMissing(err), err == nil && fresh.UID != ref.UID:
		if c.monitors.elsewhere(owner) {
			// Not marked as gone: every dependent that names it is reported.
			c.reportMisplaced(o, meta, ref)
			return absent, nil
		}
		c.graph.markGone(owner)
		return absent, nil
	case err != nil:
		return 0, fmt.Errorf("looking for owner %s: %w", describe(ref), err)
	case fresh.DeletionTimestamp != nil && slices.Contains(fresh.Finalizers, metav1.FinalizerDeleteDependents):
		return waiting, nil
	}
	return solid, nil
}

func errUnknownKind(o object, ref metav1.OwnerReference) error {
	return fmt.Errorf("%s %s/%s names an owner of unknown kind %s %s", o.resource.Resource, o.namespace, o.name, ref.APIVersion, ref.Kind)
}

// isObjectMissing says that there is no object of a name, unlike a resource
// that is not served any longer, which is not found either.
func isObjectMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// deleteForeground has the dependents of an object deleted and, when none
// that blocks it is left, lets the object go.
func (c *collector) deleteForeground(ctx context.Context, o object) error {
	meta := c.monitors.cached(o)
	if meta == nil || !slices.Contains(meta.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		return nil
	}
	blocked := false
	for _, d := range c.graph.dependentsOf(o.uid) {
		blocked = blocked || d.blocks
		c.queue.Add(task{judge, d.object})
	}
	if blocked {
		return nil
	}
	return c.dropFinalizer(ctx, o, meta, metav1.FinalizerDeleteDependents)
}

// orphanDependents takes the references to an object out of its dependents,
// and then lets the object go.
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
	return c.dropFinalizer(ctx, o, meta, metav1.FinalizerOrphanDependents)
}

// setOwners replaces an object's owner references, unless it has changed
// since meta.
func (c *collector) setOwners(ctx context.Context, o object, meta metav1.Object, refs []metav1.OwnerReference) error {
	_, err := c.patch(ctx, o, meta, "ownerReferences", append([]metav1.OwnerReference{}, refs...))
	return ignoreNotFound(err)
}

func (c *collector) dropFinalizer(ctx context.Context, o object, meta metav1.Object, finalizer string) error {
	keep := slices.DeleteFunc(append([]string{}, meta.GetFinalizers()...), func(f string) bool { return f == finalizer })
	_, err := c.patch(ctx, o, meta, "finalizers", keep)
	return ignoreNotFound(err)
}

// patch sets one field of the metadata, unless the object has changed since meta.
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

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// reportMisplaced tells users of a reference to an owner in another namespace,
// where no owner can be.
func (c *collector) reportMisplaced(o object, meta metav1.Object, ref metav1.OwnerReference) {
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
