package registry

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// ScaleOf returns the Scale of an object.
func ScaleOf(s *resource.Subresource, obj resource.Object) *autoscalingv1.Scale {
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              obj.GetName(),
			Namespace:         obj.GetNamespace(),
			UID:               obj.GetUID(),
			ResourceVersion:   obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: s.Scale.SpecReplicas(obj)},
		Status: autoscalingv1.ScaleStatus{
			Replicas: s.Scale.StatusReplicas(obj),
			Selector: s.Scale.Selector(obj),
		},
	}
	scale.SetGroupVersionKind(s.Kind)
	return scale
}

// UpdateScale sets the replicas of an object to the replicas in a client's
// Scale.
func (q *Request) UpdateScale(scale *autoscalingv1.Scale, options *metav1.UpdateOptions) (*watchcache.Entry, error) {
	if err := q.PlaceInNamespace(scale); err != nil {
		return nil, err
	}
	if err := q.checkName(scale); err != nil {
		return nil, err
	}
	e, _, err := (&update{q: q, options: options, uid: scale.UID, next: func(current *watchcache.Entry) (resource.Object, error) {
		return q.scaled(scale.DeepCopy(), current, options)
	}}).store()
	return e, err
}

// PatchScale applies a patch to the Scale of an object.
func (q *Request) PatchScale(p *Patch) (*watchcache.Entry, error) {
	options := updateOptionsOf(p.options)
	e, _, err := (&update{q: q, options: options, next: func(current *watchcache.Entry) (resource.Object, error) {
		before, err := q.live(current)
		if err != nil {
			return nil, err
		}
		scale, err := patcher{q, p}.patchedScale(ScaleOf(q.Subresource, before))
		if err != nil {
			return nil, err
		}
		if err := q.checkName(scale); err != nil {
			return nil, err
		}
		return q.scaled(scale, current, options)
	}}).store()
	return e, err
}

func (p patcher) patchedScale(scale *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	next := &autoscalingv1.Scale{}
	if p.kind == types.StrategicMergePatchType {
		return next, p.mergeStrategically(scale, &autoscalingv1.Scale{}, next)
	}
	merge := *p.Patch
	if p.kind == types.ApplyYAMLPatchType {
		body, err := yamlToJSON(p.body)
		if err != nil {
			return nil, err
		}
		merge.kind, merge.body = types.MergePatchType, body
	}
	data, err := codec.Encode(scale, codec.JSON)
	if err != nil {
		return nil, err
	}
	data, strict, err := merge.applyJSON(p.q.Context, data)
	if err != nil {
		return nil, err
	}
	return next, p.decodePatched(next, p.q.Subresource.Kind, data, strict)
}

// scaled passes a Scale through admission and returns the object with its
// replicas.
func (q *Request) scaled(scale *autoscalingv1.Scale, current *watchcache.Entry, options *metav1.UpdateOptions) (resource.Object, error) {
	before, err := q.live(current)
	if err != nil {
		return nil, err
	}
	scale.SetGroupVersionKind(q.Subresource.Kind)
	g := q.Admitter(admission.Update, options, len(options.DryRun) > 0)
	if err := g.Mutate(scale, ScaleOf(q.Subresource, before), q.Info.Name); err != nil {
		return nil, err
	}
	if scale.Spec.Replicas < 0 && !q.Subresource.Scale.Unchecked {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: q.Subresource.Kind.Group, Kind: q.Subresource.Kind.Kind}, scale.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0").WithOrigin("minimum"),
		})
	}
	if scale.ResourceVersion != "" && scale.ResourceVersion != current.Object.GetResourceVersion() {
		if _, err := status.ParseRevision(scale.ResourceVersion); err != nil {
			return nil, err
		}
		return nil, status.Modified(q.Endpoint.GroupResource(), q.Info.Name)
	}
	obj := before.DeepCopyObject().(resource.Object)
	q.Subresource.Scale.SetReplicas(obj, scale.Spec.Replicas)
	return obj, q.manage(before, obj, options.FieldManager)
}

// isScale reports whether s, which may be nil, is the subresource scale.
func isScale(s *resource.Subresource) bool { return s != nil && s.Scale != nil }

// admitted returns what admission sees of an object in a request for s: its
// Scale if that is the subresource scale, else the object.
func admitted(s *resource.Subresource, obj resource.Object) runtime.Object {
	if isScale(s) {
		return ScaleOf(s, obj)
	}
	return obj
}

func yamlToJSON(body []byte) ([]byte, error) {
	data, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	return data, nil
}
