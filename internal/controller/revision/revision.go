// Package revision maintains the ControllerRevisions of an object. Each holds an
// immutable copy of a pod template that the object has or had. They identify the
// template of a pod and allow an update to be rolled back.
package revision

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
)

// HashLabel is the label with a revision's hash, for all owners but DaemonSets.
const HashLabel = "controller.kubernetes.io/hash"

// History reads and writes the revisions of one owner.
type History struct {
	// Label is the label with a revision's hash. The name of a revision ends in
	// the same hash.
	Label string
	Kube  kubernetes.Interface
	// Revisions is the informer of all revisions, with the index of
	// workload.IndexByController.
	Revisions cache.SharedIndexInformer

	Owner    metav1.Object
	Kind     schema.GroupVersionKind
	Selector *metav1.LabelSelector
	Template *v1.PodTemplateSpec
	// CanAdopt returns an error if the owner must not adopt revisions, because it has
	// been replaced or is being deleted.
	CanAdopt func(ctx context.Context) error
}

// data returns the stored form of a template: a strategic merge patch that
// restores it.
func data(template *v1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// Template returns the pod template stored in a revision.
func Template(r *apps.ControllerRevision) (*v1.PodTemplateSpec, error) {
	var holder struct {
		Spec struct {
			Template v1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	err := amount.CheckJSON(&holder, r.Data.Raw)
	if err == nil {
		err = json.Unmarshal(r.Data.Raw, &holder)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &holder.Spec.Template, nil
}

func hash(raw []byte, collisions *int32) string {
	h := fnv.New32()
	h.Write(raw)
	if collisions != nil {
		h.Write([]byte(strconv.FormatInt(int64(*collisions), 10)))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// List returns the owner's revisions, oldest first. It adopts matching revisions without a
// controlling owner, which remain when an owner is deleted with the policy Orphan. A new
// owner with the same template then keeps the pods.
func (h *History) List(ctx context.Context) ([]*apps.ControllerRevision, error) {
	selector, err := metav1.LabelSelectorAsSelector(h.Selector)
	if err != nil {
		return nil, err
	}
	// In this order, an orphan that is adopted meanwhile is found twice, and not missed.
	orphans, err := workload.Orphans[*apps.ControllerRevision](h.Revisions, h.Owner.GetNamespace())
	if err != nil {
		return nil, err
	}
	controlled, err := workload.Controlled[*apps.ControllerRevision](h.Revisions, h.Owner.GetUID())
	if err != nil {
		return nil, err
	}
	orphans = slices.DeleteFunc(orphans, func(orphan *apps.ControllerRevision) bool {
		return slices.ContainsFunc(controlled, func(r *apps.ControllerRevision) bool {
			return r.Namespace == orphan.Namespace && r.Name == orphan.Name
		})
	})
	var owned []*apps.ControllerRevision
	for _, r := range append(controlled, orphans...) {
		switch {
		case r.Namespace != h.Owner.GetNamespace(), !selector.Matches(labels.Set(r.Labels)):
		case metav1.IsControlledBy(r, h.Owner):
			owned = append(owned, r)
		case isOrphan(r):
			adopted, err := h.adopt(ctx, r)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			owned = append(owned, adopted)
		}
	}
	slices.SortFunc(owned, func(a, b *apps.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), order.ByAge(a, b))
	})
	return owned, nil
}

func isOrphan(r *apps.ControllerRevision) bool {
	return metav1.GetControllerOfNoCopy(r) == nil && r.DeletionTimestamp == nil
}

// adopt makes the owner the controlling owner of an orphan.
func (h *History) adopt(ctx context.Context, r *apps.ControllerRevision) (*apps.ControllerRevision, error) {
	if err := h.CanAdopt(ctx); err != nil {
		return nil, fmt.Errorf("can't adopt ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             r.UID,
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(h.Owner, h.Kind)},
	}})
	if err != nil {
		return nil, err
	}
	return h.Kube.AppsV1().ControllerRevisions(r.Namespace).Patch(ctx, r.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

// Current returns the revision of the owner's current template. It creates a revision if
// there is none, and makes an older one the latest if the owner has been rolled back.
// collisions is the number of names that were taken by other data; newCollisions is larger
// if there is a further collision.
func (h *History) Current(ctx context.Context, all []*apps.ControllerRevision, collisions *int32) (current *apps.ControllerRevision, newCollisions *int32, err error) {
	raw, err := data(h.Template)
	if err != nil {
		return nil, collisions, err
	}
	next := int64(1)
	if len(all) > 0 {
		next = all[len(all)-1].Revision + 1
	}
	for i := len(all) - 1; i >= 0; i-- {
		if !h.restores(all[i], raw) {
			continue
		}
		if i == len(all)-1 {
			return all[i], collisions, nil
		}
		again := all[i].DeepCopy()
		again.Revision = next
		current, err = h.Kube.AppsV1().ControllerRevisions(again.Namespace).Update(ctx, again, metav1.UpdateOptions{})
		return current, collisions, err
	}
	for {
		created, err := h.create(ctx, raw, next, collisions)
		if !apierrors.IsAlreadyExists(err) {
			return created, collisions, err
		}
		existing, err := h.Kube.AppsV1().ControllerRevisions(h.Owner.GetNamespace()).Get(ctx, h.name(raw, collisions), metav1.GetOptions{})
		if err != nil {
			return nil, collisions, err
		}
		if same := h.restores(existing, raw); same && metav1.IsControlledBy(existing, h.Owner) {
			return existing, collisions, nil
		} else if same && isOrphan(existing) {
			current, err = h.adopt(ctx, existing)
			return current, collisions, err
		}
		more := int32(1)
		if collisions != nil {
			more = *collisions + 1
		}
		collisions = &more
	}
}

// restores reports whether a revision holds the owner's template, whose stored form is
// raw. Other versions of Kubernetes have stored the same template in another form, such
// as with "creationTimestamp": null or without defaults. A new revision would then
// restart all pods.
func (h *History) restores(r *apps.ControllerRevision, raw []byte) bool {
	if bytes.Equal(r.Data.Raw, raw) {
		return true
	}
	held, err := Template(r)
	if err != nil {
		return false
	}
	wanted := h.Template.DeepCopy()
	pod.DefaultTemplate(held)
	pod.DefaultTemplate(wanted)
	return equality.Semantic.DeepEqual(held, wanted)
}

func (h *History) name(raw []byte, collisions *int32) string {
	owner := h.Owner.GetName()
	return owner[:min(len(owner), 223)] + "-" + hash(raw, collisions)
}

func (h *History) create(ctx context.Context, raw []byte, number int64, collisions *int32) (*apps.ControllerRevision, error) {
	r := &apps.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       h.Owner.GetNamespace(),
			Name:            h.name(raw, collisions),
			Labels:          map[string]string{},
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h.Owner, h.Kind)},
		},
		Data:     runtime.RawExtension{Raw: raw},
		Revision: number,
	}
	for k, v := range h.Template.Labels {
		r.Labels[k] = v
	}
	r.Labels[h.Label] = hash(raw, collisions)
	for k, v := range h.Owner.GetAnnotations() {
		r.Annotations[k] = v
	}
	return h.Kube.AppsV1().ControllerRevisions(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
}

// Truncate deletes the oldest revisions above a limit, except those in use. A nil or
// negative limit means no limit.
func (h *History) Truncate(ctx context.Context, all []*apps.ControllerRevision, limit *int32, inUse map[string]bool) error {
	if limit == nil || *limit < 0 {
		return nil
	}
	unused := slices.DeleteFunc(slices.Clone(all), func(r *apps.ControllerRevision) bool { return inUse[r.Name] })
	for len(unused) > int(*limit) {
		// The name follows from the template: somebody may need the revision again by now.
		err := h.Kube.AppsV1().ControllerRevisions(unused[0].Namespace).Delete(ctx, unused[0].Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &unused[0].UID, ResourceVersion: &unused[0].ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		unused = unused[1:]
	}
	return nil
}
