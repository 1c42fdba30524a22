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

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/jsonpatch"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Patch is a patch with its type and options.
type Patch struct {
	kind    types.PatchType
	body    []byte
	options *metav1.PatchOptions
}

// ParsePatch parses a client's patch. It returns a BadRequest if the body is
// not valid JSON, YAML or CBOR.
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

// PatchAsJSON converts the body of a patch to JSON.
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

// PatchTypes returns the media types of patches that the endpoint accepts.
// cbor includes those in CBOR.
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

// Patch applies a patch of any type. created reports whether an apply created
// the object.
func (q *Request) Patch(p *Patch) (e *watchcache.Entry, created bool, err error) {
	return (&update{
		q:           q,
		options:     updateOptionsOf(p.options),
		allowCreate: p.kind == types.ApplyYAMLPatchType && q.Subresource == nil,
		next:        func(current *watchcache.Entry) (resource.Object, error) { return patcher{q, p}.patched(current) },
	}).store()
}

// patcher applies a patch in a request.
type patcher struct {
	q *Request
	*Patch
}

// patched returns the current object with the patch applied, and checks its
// name, namespace and UID.
func (p patcher) patched(current *watchcache.Entry) (resource.Object, error) {
	obj, err := p.patchedObject(current)
	if err != nil {
		return nil, err
	}
	if obj.GetUID() != "" && current == nil {
		return nil, apierrors.NewConflict(p.q.Endpoint.GroupResource(), p.q.Info.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
	}
	if err := p.q.PlaceInNamespace(obj); err != nil {
		return nil, err
	}
	if err := p.q.checkName(obj); err != nil {
		return nil, err
	}
	if p.kind == types.ApplyYAMLPatchType {
		return obj, nil
	}
	live, err := p.q.live(current)
	if err != nil {
		return nil, err
	}
	return obj, p.q.manage(live, obj, p.options.FieldManager)
}

// patchedObject applies the patch.
func (p patcher) patchedObject(current *watchcache.Entry) (resource.Object, error) {
	if p.kind == types.ApplyYAMLPatchType {
		return p.applied(current)
	}
	v := p.q.Endpoint.Version
	obj, ok := p.patchedByParts(current)
	if !ok || p.q.Endpoint.undecodable(obj) != nil {
		obj = v.New()
		var err error
		if p.kind == types.StrategicMergePatchType {
			var before resource.Object
			if before, err = p.q.Endpoint.Codec.Object(current); err == nil {
				err = p.mergeStrategically(before, v.New(), obj)
			}
		} else {
			err = p.patchJSON(current, obj)
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
func (p patcher) patchJSON(current *watchcache.Entry, obj resource.Object) error {
	data, err := p.q.Endpoint.Codec.JSON(current)
	if err != nil {
		return err
	}
	data, strict, err := p.applyJSON(p.q.Context, data)
	if err != nil {
		return err
	}
	return p.decodePatched(obj, p.q.Endpoint.GVK(), data, strict)
}

// decodePatched decodes the patched JSON into obj.
func (p patcher) decodePatched(obj runtime.Object, kind schema.GroupVersionKind, data []byte, strict []error) error {
	found, actual, err := codec.DecodeJSON(obj, kind, data, p.wantsStrict())
	if outside := (*amount.RangeError)(nil); errors.As(err, &outside) {
		return apierrors.NewBadRequest(err.Error())
	}
	if _, custom := obj.(*unstructured.Unstructured); err == nil && !custom {
		err = codec.WrongKind(actual, kind, p.q.Registry.Routes().known)
	}
	var unknown []error
	if err == nil {
		unknown, err = p.q.Endpoint.coerce(obj)
	}
	if err != nil {
		return invalidPatch(string(data), err)
	}
	return p.checkStrict(slices.Concat(strict, found, unknown), string(data))
}

// checkStrict refuses unknown and duplicate fields, or warns of them, as the
// field validation of the request says.
func (p patcher) checkStrict(strict []error, value string) error {
	switch {
	case len(strict) == 0 || !p.wantsStrict():
		return nil
	case p.options.FieldValidation == metav1.FieldValidationStrict:
		return invalidPatch(value, runtime.NewStrictDecodingError(strict))
	}
	p.q.warnStrict(strict)
	return nil
}

func (p *Patch) wantsStrict() bool { return p.options.FieldValidation != metav1.FieldValidationIgnore }

func invalidPatch(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

// patchOperation is one operation of a JSON patch (RFC 6902). Error messages
// contain upstream's name of this type.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// applyJSON applies a JSON patch or a merge patch to a document. strict lists
// unknown and duplicate fields of the patch itself.
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

// mergeStrategically applies a strategic merge patch to current, with the
// merge keys of the type of sample, and decodes the result into next. Both
// have the type of sample.
func (p patcher) mergeStrategically(current, sample, next runtime.Object) error {
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return err
	}
	changes := map[string]any{}
	var strict []error
	if p.wantsStrict() {
		strict, err = kjson.UnmarshalStrict(p.body, &changes)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(p.body, &changes)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if exceedsMergeLimit(original, changes, sample) {
		return errLongLists()
	}
	merged, err := strategicMerge(original, changes, sample)
	if err != nil {
		return strategicError(err)
	}
	if err := amount.CheckValue(next, merged); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, next, p.wantsStrict())
	if err != nil {
		unknown, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return invalidPatch(fmt.Sprintf("%+v", changes), err)
		}
		strict = append(strict, unknown.Errors()...)
	}
	if err := p.q.Endpoint.undecodable(next); err != nil {
		return invalidPatch(fmt.Sprintf("%+v", changes), err)
	}
	return p.checkStrict(strict, fmt.Sprintf("%+v", changes))
}

func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return status.Unprocessable(err)
	}
	return apierrors.NewBadRequest(err.Error())
}

// applied returns the result of a server-side apply.
func (p patcher) applied(current *watchcache.Entry) (resource.Object, error) {
	if p.q.Registry.Managers == nil {
		return nil, status.UnsupportedMediaType(slices.DeleteFunc(p.q.Endpoint.PatchTypes(false), func(t string) bool { return strings.HasPrefix(t, "application/apply-") }))
	}
	configuration, plain, err := p.configuration()
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if err := amount.CheckValue(p.q.Endpoint.Version.New(), configuration); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	force := p.options.Force != nil && *p.options.Force
	live, err := p.q.live(current)
	if err != nil {
		return nil, err
	}
	obj, err := p.q.Registry.Managers.Apply(managedKind(p.q), live, configuration, p.options.FieldManager, force)
	if err != nil {
		return nil, err
	}
	if err := p.q.Endpoint.undecodable(obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if p.wantsStrict() && !plain {
		if err := yaml.UnmarshalStrict(p.body, &map[string]any{}); err != nil {
			if p.options.FieldValidation == metav1.FieldValidationStrict {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
			}
			p.q.warnStrict([]error{err})
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
