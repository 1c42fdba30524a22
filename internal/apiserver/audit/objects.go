package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/impersonation"
)

// Object records the name of the object that the client sent and, if the policy
// requires it, the object. It does not retain obj.
func (r *Request) Object(ctx context.Context, obj runtime.Object, kind schema.GroupVersionKind, gvr schema.GroupVersionResource, subresource string) {
	if !r.records(auditapi.LevelMetadata) {
		return
	}
	if of := obj.GetObjectKind(); of.GroupVersionKind() != kind {
		before := of.GroupVersionKind()
		of.SetGroupVersionKind(kind)
		defer of.SetGroupVersionKind(before)
	}
	audit.LogRequestObject(ctx, obj, kind.GroupVersion(), gvr, subresource, encoding{whole: r.records(auditapi.LevelRequest)})
}

// Patch records a patch. encode returns it as JSON.
func (r *Request) Patch(encode func() ([]byte, error)) {
	if !r.records(auditapi.LevelRequest) {
		return
	}
	if patch, err := encode(); err == nil {
		r.context.LogRequestPatch(bytes.Clone(patch))
	}
}

// Responses reports whether response bodies are recorded.
func (r *Request) Responses() bool { return r.records(auditapi.LevelRequestResponse) }

// Response records a response body in JSON, unless err is set.
func (r *Request) Response(body []byte, err error) {
	if err == nil {
		r.respond(nil, body)
	}
}

// Status records a status as the response.
func (r *Request) Status(status *metav1.Status) {
	if !r.records(auditapi.LevelMetadata) {
		return
	}
	var body []byte
	if r.Responses() {
		var err error
		if body, err = json.Marshal(status); err != nil {
			klog.Background().Error(err, "Cannot encode a status for the audit log", "auditID", r.context.AuditID())
		}
	}
	r.respond(status, body)
}

// Answer records an object that is not stored as the response.
func (r *Request) Answer(obj runtime.Object) {
	if r == nil {
		return
	}
	if status, ok := obj.(*metav1.Status); ok {
		r.Status(status)
	} else if r.Responses() {
		r.Response(codec.Encode(obj, codec.JSON))
	}
}

func (r *Request) respond(status *metav1.Status, body []byte) {
	var object *runtime.Unknown
	if len(body) > 0 {
		if r.config.OmitManagedFields {
			body = withoutManagedFields(body)
		}
		object = &runtime.Unknown{Raw: bytes.Clone(body), ContentType: runtime.ContentTypeJSON}
	}
	r.context.LogResponseObject(status, object)
}

// Impersonated records the user that the request impersonates.
func (r *Request) Impersonated(i impersonation.Identity) {
	if r.records(auditapi.LevelMetadata) {
		r.context.LogImpersonatedUser(i.User, i.Constraint)
	}
}

// encoding is a runtime.NegotiatedSerializer for JSON in the version of the
// object. Unless whole is set, it writes nothing.
type encoding struct{ whole bool }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (encoding) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true}}
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (e encoding) EncoderForVersion(runtime.Encoder, runtime.GroupVersioner) runtime.Encoder {
	return e
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (encoding) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// Encode implements runtime.Encoder.
func (e encoding) Encode(obj runtime.Object, w io.Writer) error {
	if !e.whole {
		return nil
	}
	return json.NewEncoder(w).Encode(obj)
}

// Identifier implements runtime.Encoder.
func (encoding) Identifier() runtime.Identifier { return "audit" }

// withoutManagedFields removes metadata.managedFields from an object, the items
// of a list and the rows of a table. It leaves what it cannot parse unchanged.
func withoutManagedFields(body []byte) []byte {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return body
	}
	changed := false
	if metadata := object["metadata"]; bytes.Contains(metadata, []byte(`"managedFields"`)) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(metadata, &fields) == nil {
			delete(fields, "managedFields")
			changed = replace(object, "metadata", fields) || changed
		}
	}
	for _, list := range []string{"items", "rows", "object"} {
		if !bytes.Contains(object[list], []byte(`"managedFields"`)) {
			continue
		}
		if list == "object" {
			object[list] = withoutManagedFields(object[list])
			changed = true
			continue
		}
		var items []json.RawMessage
		if json.Unmarshal(object[list], &items) == nil {
			for i := range items {
				items[i] = withoutManagedFields(items[i])
			}
			changed = replace(object, list, items) || changed
		}
	}
	if !changed {
		return body
	}
	out, err := json.Marshal(object)
	if err != nil {
		return body
	}
	return out
}

func replace(object map[string]json.RawMessage, field string, value any) bool {
	raw, err := json.Marshal(value)
	if err != nil {
		return false
	}
	object[field] = raw
	return true
}
