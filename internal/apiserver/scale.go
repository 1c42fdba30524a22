package apiserver

import (
	"fmt"
	"net/http"

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
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// scaleOf shows an object as a Scale.
func scaleOf(s *resource.Subresource, obj resource.Object) *autoscalingv1.Scale {
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

func (q *request) sendScale(code int, e *watchcache.Entry, o codec.Output) error {
	answer, err := q.scaleAs(scaleOf(q.sub, e.Object), o)
	if err != nil {
		return err
	}
	return q.sendObject(code, answer, o)
}

// updateScale changes the replicas of an object by PUT or PATCH of its Scale.
func (q *request) updateScale() error {
	var c *change
	var o codec.Output
	var err error
	if q.info.Verb == "patch" {
		c, o, err = q.scalePatch()
	} else {
		c, o, err = q.scaleReplacement()
	}
	if err != nil {
		return err
	}
	e, _, err := q.store(c)
	if err != nil {
		return err
	}
	return q.sendScale(http.StatusOK, e, o)
}

func (q *request) scaleReplacement() (*change, codec.Output, error) {
	o, err := q.negotiate()
	if err != nil {
		return nil, o, err
	}
	in, err := q.input()
	if err != nil {
		return nil, o, err
	}
	options, err := updateOptions(q.query())
	if err != nil {
		return nil, o, err
	}
	scale := &autoscalingv1.Scale{}
	if err := q.decodeInto(scale, q.sub.Kind, in, options.FieldValidation); err != nil {
		return nil, o, err
	}
	q.recordBody(scale, q.sub.Kind)
	if err := q.placeInNamespace(scale); err != nil {
		return nil, o, err
	}
	if err := q.checkName(scale); err != nil {
		return nil, o, err
	}
	return &change{options: options, uid: scale.UID, next: func(current *watchcache.Entry) (resource.Object, error) {
		return q.scaled(scale.DeepCopy(), current, options)
	}}, o, nil
}

func (q *request) scalePatch() (*change, codec.Output, error) {
	p, o, err := q.readPatch()
	if err != nil {
		return nil, o, err
	}
	options := updateOptionsOf(p.options)
	return &change{options: options, next: func(current *watchcache.Entry) (resource.Object, error) {
		scale, err := q.patchedScale(p, scaleOf(q.sub, current.Object))
		if err != nil {
			return nil, err
		}
		if err := q.checkName(scale); err != nil {
			return nil, err
		}
		return q.scaled(scale, current, options)
	}}, o, nil
}

func (q *request) patchedScale(p *patch, scale *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	next := &autoscalingv1.Scale{}
	if p.kind == types.StrategicMergePatchType {
		return next, q.mergeStrategically(p, scale, &autoscalingv1.Scale{}, next)
	}
	merge := *p
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
	data, strict, err := merge.applyJSON(q.ctx, data)
	if err != nil {
		return nil, err
	}
	return next, q.decodePatched(p, next, q.sub.Kind, data, strict)
}

// scaled makes the object with the replicas that a Scale wants once admission
// has seen it.
func (q *request) scaled(scale *autoscalingv1.Scale, current *watchcache.Entry, options *metav1.UpdateOptions) (resource.Object, error) {
	scale.SetGroupVersionKind(q.sub.Kind)
	g := q.gate(admission.Update, options, len(options.DryRun) > 0)
	if err := g.mutate(scale, q.admitted(current.Object), q.info.Name); err != nil {
		return nil, err
	}
	if scale.Spec.Replicas < 0 && !q.sub.Scale.Unchecked {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: q.sub.Kind.Group, Kind: q.sub.Kind.Kind}, scale.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0").WithOrigin("minimum"),
		})
	}
	if scale.ResourceVersion != "" && scale.ResourceVersion != current.Object.GetResourceVersion() {
		if _, err := parseRevision(scale.ResourceVersion); err != nil {
			return nil, err
		}
		return nil, errModified(q.endpoint.groupResource(), q.info.Name)
	}
	obj := current.Object.DeepCopyObject().(resource.Object)
	q.sub.Scale.SetReplicas(obj, scale.Spec.Replicas)
	return obj, q.manage(current.Object, obj, options.FieldManager)
}

// scales says whether the request is about an object's Scale.
func (q *request) scales() bool { return q.sub != nil && q.sub.Scale != nil }

// admitted is what admission sees of an object: its Scale if that is what the
// request is about.
func (q *request) admitted(obj resource.Object) runtime.Object {
	if q.scales() {
		return scaleOf(q.sub, obj)
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
