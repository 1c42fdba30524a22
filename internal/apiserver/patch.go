package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// patch is a PATCH: how, with what and under which options.
type patch struct {
	kind    types.PatchType
	body    []byte
	options *metav1.PatchOptions
}

// patch changes an object by one of the four kinds of patches.
func (q *request) patch() error {
	p, o, err := q.readPatch()
	if err != nil {
		return err
	}
	change := &change{options: updateOptionsOf(p.options), next: func(current *watchcache.Entry) (resource.Object, error) {
		return q.patched(p, current)
	}}
	change.allowCreate = p.kind == types.ApplyYAMLPatchType && q.sub == nil
	e, created, err := q.store(change)
	if err != nil {
		return err
	}
	return q.sendEntry(createdOr(created, http.StatusOK), e, o)
}

// readPatch reads everything about a patch but the object.
func (q *request) readPatch() (*patch, codec.Output, error) {
	contentType, _, _ := strings.Cut(q.http.Header.Get("Content-Type"), ";")
	if accepted := q.patchTypes(); !slices.Contains(accepted, contentType) {
		return nil, codec.Output{}, errUnsupportedMediaType(accepted)
	}
	o, err := q.negotiate()
	if err != nil {
		return nil, o, err
	}
	p := &patch{kind: types.PatchType(contentType)}
	if p.body, err = q.readBody(); err != nil {
		return nil, o, err
	}
	if q.audit != nil {
		q.audit.Patch(func() ([]byte, error) { return patchAsJSON(p) })
	}
	if p.options, err = patchOptions(q.query(), p.kind); err != nil {
		return nil, o, err
	}
	if p.kind == types.ApplyCBORPatchType {
		p.kind = types.ApplyYAMLPatchType
		if p.body, err = codec.CBORToJSON(p.body); err != nil {
			return nil, o, apierrors.NewBadRequest(fmt.Sprintf("error decoding CBOR: %v", err))
		}
	}
	if p.kind == types.ApplyYAMLPatchType {
		if _, plain := plainJSON(p.body); plain {
			return p, o, nil
		}
		if _, err := yaml.YAMLToJSON(p.body); err != nil {
			return nil, o, apierrors.NewBadRequest(fmt.Sprintf("error encoding patch: %v", err))
		}
	} else if !json.Valid(p.body) {
		return nil, o, apierrors.NewBadRequest("invalid JSON patch")
	}
	return p, o, nil
}

// patchAsJSON is what a patch says, as JSON.
func patchAsJSON(p *patch) ([]byte, error) {
	switch p.kind {
	case types.ApplyYAMLPatchType:
		return yaml.YAMLToJSON(p.body)
	case types.ApplyCBORPatchType:
		return codec.CBORToJSON(p.body)
	}
	if !json.Valid(p.body) {
		return nil, errors.New("invalid JSON patch")
	}
	return p.body, nil
}

func (q *request) patchTypes() []string {
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if !isUnstructured(q.endpoint) {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	accepted = append(accepted, string(types.ApplyYAMLPatchType))
	if q.server.CBOR {
		accepted = append(accepted, string(types.ApplyCBORPatchType))
	}
	return accepted
}

func isUnstructured(e *endpoint) bool {
	_, ok := e.version.New().(*unstructured.Unstructured)
	return ok
}

// patched makes the object that the patch turns the current one into.
func (q *request) patched(p *patch, current *watchcache.Entry) (resource.Object, error) {
	obj, err := q.patchedObject(p, current)
	if err != nil {
		return nil, err
	}
	if obj.GetUID() != "" && current == nil {
		return nil, apierrors.NewConflict(q.endpoint.groupResource(), q.info.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
	}
	if err := q.placeInNamespace(obj); err != nil {
		return nil, err
	}
	if err := q.checkName(obj); err != nil {
		return nil, err
	}
	if p.kind != types.ApplyYAMLPatchType {
		return obj, q.manage(current.Object, obj, p.options.FieldManager)
	}
	return obj, nil
}

// patchedObject applies the patch.
func (q *request) patchedObject(p *patch, current *watchcache.Entry) (resource.Object, error) {
	if p.kind == types.ApplyYAMLPatchType {
		return q.applied(p, current)
	}
	v := q.endpoint.version
	obj, ok := q.patchedPartly(p, current)
	if !ok {
		obj = v.New()
		var err error
		if p.kind == types.StrategicMergePatchType {
			var before resource.Object
			if before, err = q.endpoint.codec.Object(current); err == nil {
				err = q.mergeStrategically(p, before, v.New(), obj)
			}
		} else {
			err = q.patchJSON(p, current, obj)
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
func (q *request) patchJSON(p *patch, current *watchcache.Entry, obj resource.Object) error {
	data, err := q.endpoint.codec.JSON(current)
	if err != nil {
		return err
	}
	data, strict, err := p.applyJSON(q.ctx, data)
	if err != nil {
		return err
	}
	return q.decodePatched(p, obj, q.endpoint.gvk(), data, strict)
}

// decodePatched reads the JSON that a patch made.
func (q *request) decodePatched(p *patch, obj runtime.Object, kind schema.GroupVersionKind, data []byte, strict []error) error {
	found, actual, err := codec.DecodeJSON(obj, kind, data, p.wantsStrict())
	if _, custom := obj.(*unstructured.Unstructured); err == nil && !custom {
		err = codec.WrongKind(actual, kind, q.server.routes.Load().known)
	}
	var unknown []error
	if err == nil {
		unknown, err = q.coerce(obj)
	}
	if err != nil {
		return invalidPatch(string(data), err)
	}
	return q.judgeStrict(p, slices.Concat(strict, found, unknown), string(data))
}

// judgeStrict refuses or warns of unknown and duplicate fields.
func (q *request) judgeStrict(p *patch, strict []error, value string) error {
	switch {
	case len(strict) == 0 || !p.wantsStrict():
		return nil
	case p.options.FieldValidation == metav1.FieldValidationStrict:
		return invalidPatch(value, runtime.NewStrictDecodingError(strict))
	}
	q.warnStrict(strict)
	return nil
}

func (p *patch) wantsStrict() bool { return p.options.FieldValidation != metav1.FieldValidationIgnore }

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
func (p *patch) applyJSON(ctx context.Context, data []byte) (patched []byte, strict []error, err error) {
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
			message := strings.ReplaceAll(err.Error(), "apiserver.patchOperation", "handlers.jsonPatchOp")
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
		err = errUnprocessable(err)
	}
	return patched, strict, err
}

func errUnprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// mergeStrategically applies a strategic merge patch to current, by the merge
// keys of its type, and decodes the result into next; both are of the type of
// sample.
func (q *request) mergeStrategically(p *patch, current, sample, next runtime.Object) error {
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
	if mergesTooMuch(original, changes, sample) {
		return errLongLists()
	}
	merged, err := strategicMerge(original, changes, sample)
	if err != nil {
		return strategicError(err)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, next, p.wantsStrict())
	if err != nil {
		unknown, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return invalidPatch(fmt.Sprintf("%+v", changes), err)
		}
		strict = append(strict, unknown.Errors()...)
	}
	return q.judgeStrict(p, strict, fmt.Sprintf("%+v", changes))
}

func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return errUnprocessable(err)
	}
	return apierrors.NewBadRequest(err.Error())
}

// applied carries out a server-side apply.
func (q *request) applied(p *patch, current *watchcache.Entry) (resource.Object, error) {
	if q.server.Managers == nil {
		return nil, errUnsupportedMediaType(slices.DeleteFunc(q.patchTypes(), func(t string) bool { return strings.HasPrefix(t, "application/apply-") }))
	}
	configuration, plain, err := p.configuration()
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	force := p.options.Force != nil && *p.options.Force
	obj, err := q.server.Managers.Apply(q.managedKind(), objectOf(current), configuration, p.options.FieldManager, force)
	if err != nil {
		return nil, err
	}
	if p.wantsStrict() && !plain {
		if err := yaml.UnmarshalStrict(p.body, &map[string]any{}); err != nil {
			if p.options.FieldValidation == metav1.FieldValidationStrict {
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
