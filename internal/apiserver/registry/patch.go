package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/jsonpatch"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Patch is how an object is to be changed, with what and under which options.
type Patch struct {
	kind    types.PatchType
	body    []byte
	options *metav1.PatchOptions
}

// ParsePatch reads a patch that a client sent. One that is not even of its
// format is a BadRequest.
func ParsePatch(kind types.PatchType, body []byte, options *metav1.PatchOptions) (*Patch, error) {
	p := &Patch{kind: kind, body: body, options: options}
	if p.kind == types.ApplyCBORPatchType {
		var err error
		p.kind = types.ApplyYAMLPatchType
		if p.body, err = codec.CBORToJSON(p.body); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding CBOR: %v", err))
		}
	}
	if p.kind == types.ApplyYAMLPatchType {
		if _, plain := plainJSON(p.body); plain {
			return p, nil
		}
		if _, err := yaml.YAMLToJSON(p.body); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error encoding patch: %v", err))
		}
	} else if !json.Valid(p.body) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	return p, nil
}

// PatchAsJSON is what a patch says, as JSON.
func PatchAsJSON(kind types.PatchType, body []byte) ([]byte, error) {
	switch kind {
	case types.ApplyYAMLPatchType:
		return yaml.YAMLToJSON(body)
	case types.ApplyCBORPatchType:
		return codec.CBORToJSON(body)
	}
	if !json.Valid(body) {
		return nil, errors.New("invalid JSON patch")
	}
	return body, nil
}

// PatchTypes are the types of patches that the endpoint takes, with or without
// those in CBOR.
func (e *Endpoint) PatchTypes(cbor bool) []string {
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if _, custom := e.Version.New().(*unstructured.Unstructured); !custom {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	accepted = append(accepted, string(types.ApplyYAMLPatchType))
	if cbor {
		accepted = append(accepted, string(types.ApplyCBORPatchType))
	}
	return accepted
}

// Patch changes an object by one of the four kinds of patches. created says
// that an apply has made it.
func (q *Request) Patch(p *Patch) (e *watchcache.Entry, created bool, err error) {
	return (&update{
		options:     updateOptionsOf(p.options),
		allowCreate: p.kind == types.ApplyYAMLPatchType && q.Subresource == nil,
		next:        func(current *watchcache.Entry) (resource.Object, error) { return patcher{q, p}.patched(current) },
	}).store(q)
}

// patcher applies a patch for a request.
type patcher struct {
	*Request
	*Patch
}

// patched makes the object that the patch turns the current one into.
func (q patcher) patched(current *watchcache.Entry) (resource.Object, error) {
	obj, err := q.patchedObject(current)
	if err != nil {
		return nil, err
	}
	if obj.GetUID() != "" && current == nil {
		return nil, apierrors.NewConflict(q.Endpoint.GroupResource(), q.Info.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
	}
	if err := q.PlaceInNamespace(obj); err != nil {
		return nil, err
	}
	if err := q.CheckName(obj); err != nil {
		return nil, err
	}
	if q.kind != types.ApplyYAMLPatchType {
		return obj, q.manage(current.Object, obj, q.options.FieldManager)
	}
	return obj, nil
}

// patchedObject applies the patch.
func (q patcher) patchedObject(current *watchcache.Entry) (resource.Object, error) {
	if q.kind == types.ApplyYAMLPatchType {
		return q.applied(current)
	}
	v := q.Endpoint.Version
	obj, ok := q.patchedPartly(current)
	if !ok {
		obj = v.New()
		var err error
		if q.kind == types.StrategicMergePatchType {
			var before resource.Object
			if before, err = q.Endpoint.Codec.Object(current); err == nil {
				err = q.mergeStrategically(before, v.New(), obj)
			}
		} else {
			err = q.patchJSON(current, obj)
		}
		if err != nil {
			return nil, err
		}
	}
	v.Default(obj)
	return v.ToHub(obj), nil
}

// patchJSON applies a JSON patch or a merge patch to the object's JSON and
// decodes the result into obj.
func (q patcher) patchJSON(current *watchcache.Entry, obj resource.Object) error {
	data, err := q.Endpoint.Codec.JSON(current)
	if err != nil {
		return err
	}
	data, strict, err := q.applyJSON(q.Context, data)
	if err != nil {
		return err
	}
	return q.decodePatched(obj, q.Endpoint.GVK(), data, strict)
}

// decodePatched reads the JSON that a patch made.
func (q patcher) decodePatched(obj runtime.Object, kind schema.GroupVersionKind, data []byte, strict []error) error {
	found, actual, err := codec.DecodeJSON(obj, kind, data, q.wantsStrict())
	if _, custom := obj.(*unstructured.Unstructured); err == nil && !custom {
		err = codec.WrongKind(actual, kind, q.Registry.Routes().known)
	}
	var unknown []error
	if err == nil {
		unknown, err = q.Endpoint.coerce(obj)
	}
	if err != nil {
		return invalidPatch(string(data), err)
	}
	return q.judgeStrict(slices.Concat(strict, found, unknown), string(data))
}

// judgeStrict refuses or warns of unknown and duplicate fields.
func (q patcher) judgeStrict(strict []error, value string) error {
	switch {
	case len(strict) == 0 || !q.wantsStrict():
		return nil
	case q.options.FieldValidation == metav1.FieldValidationStrict:
		return invalidPatch(value, runtime.NewStrictDecodingError(strict))
	}
	q.warnStrict(strict)
	return nil
}

func (p *Patch) wantsStrict() bool { return p.options.FieldValidation != metav1.FieldValidationIgnore }

func invalidPatch(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

// patchOperation is one operation of a JSON patch (RFC 6902). Messages about
// it carry upstream's name of the type.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// applyJSON patches a document; strict lists unknown and duplicate fields of
// the patch itself.
func (p *Patch) applyJSON(ctx context.Context, data []byte) (patched []byte, strict []error, err error) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	if p.kind == types.MergePatchType {
		if p.wantsStrict() {
			content := map[string]any{}
			if strict, err = kjson.UnmarshalStrict(p.body, &content); err != nil {
				return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
			}
		}
		patched, err = jsonpatch.Merge(data, p.body)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		return patched, strict, nil
	}
	if p.wantsStrict() {
		var operations []patchOperation
		if strict, err = kjson.UnmarshalStrict(p.body, &operations); err != nil {
			message := strings.ReplaceAll(err.Error(), "registry.patchOperation", "handlers.jsonPatchOp")
			return nil, nil, apierrors.NewBadRequest("error decoding patch: " + message)
		}
		for i, e := range strict {
			strict[i] = fmt.Errorf("json patch %w", e)
		}
	}
	operations, err := jsonpatch.Parse(p.body)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if len(operations) > jsonpatch.MaxOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", jsonpatch.MaxOperations, len(operations)))
	}
	if patched, err = operations.Apply(ctx, data); err != nil && ctx.Err() == nil {
		err = status.Unprocessable(err)
	}
	return patched, strict, err
}

// mergeStrategically applies a strategic merge patch to current, by the merge
// keys of its type, and decodes the result into next; both are of the type of
// sample.
func (q patcher) mergeStrategically(current, sample, next runtime.Object) error {
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return err
	}
	changes := map[string]any{}
	var strict []error
	if q.wantsStrict() {
		strict, err = kjson.UnmarshalStrict(q.body, &changes)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(q.body, &changes)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if mergesTooMuch(original, changes, sample) {
		return errLongLists()
	}
	merged, err := strategicMerge(original, changes, sample)
	if err != nil {
		return strategicError(err)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, next, q.wantsStrict())
	if err != nil {
		unknown, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return invalidPatch(fmt.Sprintf("%+v", changes), err)
		}
		strict = append(strict, unknown.Errors()...)
	}
	return q.judgeStrict(strict, fmt.Sprintf("%+v", changes))
}

func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return status.Unprocessable(err)
	}
	return apierrors.NewBadRequest(err.Error())
}

// applied carries out a server-side apply.
func (q patcher) applied(current *watchcache.Entry) (resource.Object, error) {
	if q.Registry.Managers == nil {
		return nil, status.UnsupportedMediaType(slices.DeleteFunc(q.Endpoint.PatchTypes(false), func(t string) bool { return strings.HasPrefix(t, "application/apply-") }))
	}
	configuration, plain, err := q.configuration()
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	force := q.options.Force != nil && *q.options.Force
	obj, err := q.Registry.Managers.Apply(q.managedKind(), objectOf(current), configuration, q.options.FieldManager, force)
	if err != nil {
		return nil, err
	}
	if q.wantsStrict() && !plain {
		if err := yaml.UnmarshalStrict(q.body, &map[string]any{}); err != nil {
			if q.options.FieldValidation == metav1.FieldValidationStrict {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
			}
			q.warnStrict([]error{err})
		}
	}
	return obj, nil
}

func updateOptionsOf(o *metav1.PatchOptions) *metav1.UpdateOptions {
	return &metav1.UpdateOptions{
		TypeMeta:        metav1.TypeMeta{Kind: "UpdateOptions", APIVersion: "meta.k8s.io/v1"},
		DryRun:          o.DryRun,
		FieldManager:    o.FieldManager,
		FieldValidation: o.FieldValidation,
	}
}
