package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

const (
	// fieldManager owns the fields that manifests set.
	fieldManager = "coracle-manifests"
	// maxObjects is the number of objects in one file.
	maxObjects = 10000
	// applyTimeout bounds the request for one object, such as one whose webhook
	// does not answer.
	applyTimeout = 40 * time.Second
)

// decode returns the objects in a manifest: YAML or JSON documents, and the items
// of lists.
func decode(content []byte) ([]*unstructured.Unstructured, error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var objects []*unstructured.Unstructured
	for number := 1; ; number++ {
		var raw json.RawMessage
		err := documents.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err == nil {
			objects, err = add(objects, raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if len(objects) > maxObjects {
			return nil, fmt.Errorf("more than %d objects are in one file: divide it into several", maxObjects)
		}
	}
}

// add adds the object or the list in a document. A document may be empty.
func add(objects []*unstructured.Unstructured, raw json.RawMessage) ([]*unstructured.Unstructured, error) {
	if text := string(bytes.TrimSpace(raw)); text == "" || text == "null" {
		return objects, nil
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, errors.New("want an object with apiVersion, kind and metadata")
	}
	if head.APIVersion == "" || head.Kind == "" {
		return nil, errors.New("apiVersion and kind: want both")
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	if strings.HasSuffix(head.Kind, "List") && o.Object["items"] == nil && o.GetName() == "" { // as of Go's nil slices
		return objects, nil
	}
	if !o.IsList() {
		return append(objects, o), checkName(o)
	}
	err := o.EachListItem(func(item runtime.Object) error {
		one, ok := item.(*unstructured.Unstructured)
		if !ok || one.GetAPIVersion() == "" || one.GetKind() == "" {
			return errors.New("items: each wants apiVersion and kind")
		}
		objects = append(objects, one)
		return checkName(one)
	})
	return objects, err
}

// checkName returns an error for an object without a name: it would be created
// again at each start.
func checkName(o *unstructured.Unstructured) error {
	if o.GetName() == "" {
		return fmt.Errorf("%s: metadata.name: want a name", o.GetKind())
	}
	return nil
}

// nameOf names an object for messages.
func nameOf(o *unstructured.Unstructured) string {
	if ns := o.GetNamespace(); ns != "" {
		return o.GetKind() + " " + ns + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

// target is where objects are applied.
type target struct {
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	dynamic dynamic.Interface
}

// reset forgets the kinds, of which there may be more.
func (t *target) reset() { t.mapper.Reset() }

// apply applies an object on the server, and takes fields that others own. An
// object without a namespace is in the namespace default if its kind has
// namespaces. A field that its kind does not have is an error.
func (t *target) apply(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	kind := o.GroupVersionKind()
	mapping, err := t.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if namespace = o.GetNamespace(); namespace == "" {
			namespace = metav1.NamespaceDefault
		}
	}
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = t.dynamic.Resource(mapping.Resource).Namespace(namespace).Patch(ctx, o.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: fieldManager, Force: new(true), FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}
