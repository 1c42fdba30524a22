// Package revision keeps the ControllerRevisions of an object: one immutable
// copy of its pod template for each that it had, so that pods can be told
// apart by template and an update can be undone.
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
)

// HashLabel is the label that the revisions of all owners but DaemonSets carry
// their hash in.
const HashLabel = "controller.kubernetes.io/hash"

// History reads and writes the revisions of one owner.
type History struct {
	// Label holds a revision's hash, which its name ends in.
	Label    string
	Kube     kubernetes.Interface
	Lister   appslisters.ControllerRevisionLister
	Owner    metav1.Object
	Kind     schema.GroupVersionKind
	Selector *metav1.LabelSelector
	Template *v1.PodTemplateSpec
}

// data is the stored form of a template: a patch that puts it back.
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

// Template returns the pod template that a revision keeps.
func Template(r *apps.ControllerRevision) (*v1.PodTemplateSpec, error) {
	var holder struct {
		Spec struct {
			Template v1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &holder); err != nil {
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

// List returns the owner's revisions, oldest first.
func (h *History) List() ([]*apps.ControllerRevision, error) {
	selector, err := metav1.LabelSelectorAsSelector(h.Selector)
	if err != nil {
		return nil, err
	}
	all, err := h.Lister.ControllerRevisions(h.Owner.GetNamespace()).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	owned := slices.DeleteFunc(all, func(r *apps.ControllerRevision) bool {
		return !metav1.IsControlledBy(r, h.Owner) || !selector.Matches(labels.Set(r.Labels))
	})
	slices.SortFunc(owned, func(a, b *apps.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return owned, nil
}

// Current returns the revision of the owner's present template. It makes one
// if there is none, and makes an older one the latest if the owner went back
// to its template. collisions counts names taken by other data; it is raised
// if one more is.
func (h *History) Current(ctx context.Context, all []*apps.ControllerRevision, collisions *int32) (current *apps.ControllerRevision, raised *int32, err error) {
	raw, err := data(h.Template)
	if err != nil {
		return nil, collisions, err
	}
	next := int64(1)
	if len(all) > 0 {
		next = all[len(all)-1].Revision + 1
	}
	for i := len(all) - 1; i >= 0; i-- {
		if !bytes.Equal(all[i].Data.Raw, raw) {
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
		if metav1.IsControlledBy(existing, h.Owner) && bytes.Equal(existing.Data.Raw, raw) {
			return existing, collisions, nil
		}
		more := int32(1)
		if collisions != nil {
			more = *collisions + 1
		}
		collisions = &more
	}
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

// Trim deletes the oldest revisions above a limit, except those in use.
func (h *History) Trim(ctx context.Context, all []*apps.ControllerRevision, limit *int32, inUse map[string]bool) error {
	if limit == nil {
		return nil
	}
	idle := slices.DeleteFunc(slices.Clone(all), func(r *apps.ControllerRevision) bool { return inUse[r.Name] })
	for len(idle) > int(*limit) {
		err := h.Kube.AppsV1().ControllerRevisions(idle[0].Namespace).Delete(ctx, idle[0].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		idle = idle[1:]
	}
	return nil
}
