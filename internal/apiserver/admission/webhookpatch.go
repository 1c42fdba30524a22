package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/apiserver/jsonpatch"
	"github.com/coracle-io/coracle/internal/apiserver/webhooks"
)

// mutatingWebhookExtension refuses patches of webhooks that bring a quantity out
// of range into the object, such as one that a webhook copies from an annotation.
// The library decodes the patched object, and offers no place between.
type mutatingWebhookExtension struct {
	mutatingExtension
	// decoder returns the decoder of the webhooks' answers.
	decoder func() runtime.Decoder
}

// newMutatingWebhookExtension wraps the plugin that calls webhooks.
func newMutatingWebhookExtension(e *extension) mutatingWebhookExtension {
	return mutatingWebhookExtension{mutatingExtension{e}, sync.OnceValue(reviewDecoder)}
}

func (e mutatingWebhookExtension) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	check := func(request, answer []byte) []byte { return e.checked(ctx, o.GetObjectCreater(), request, answer) }
	return e.mutatingExtension.Admit(webhooks.WithCheck(ctx, check), a, o)
}

// checked returns the answer of a webhook, or a refusal in its place if its patch
// brings a quantity out of range into the object. It returns an answer that the
// library cannot decode as it is.
func (e mutatingWebhookExtension) checked(ctx context.Context, kinds runtime.ObjectCreater, request, answer []byte) []byte {
	r := decodeReview(e.decoder(), answer)
	if r == nil || len(r.patch) == 0 || !amount.Suspicious(r.patch) && !amount.Suspicious(request) {
		return answer
	}
	err := checkPatch(ctx, kinds, request, r.patch)
	if err == nil {
		return answer
	}
	refusal, err := json.Marshal(r.refuse(&metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonBadRequest, Code: http.StatusBadRequest,
		Message: fmt.Sprintf("the webhook's patch is refused: %v", err),
	}))
	if err != nil { // does not happen: what was decoded can be encoded
		return nil
	}
	return refusal
}

// checkPatch applies a patch to the object of a request, and checks the result as
// an object of the kind that was sent, and of the kind that the patch makes it.
func checkPatch(ctx context.Context, kinds runtime.ObjectCreater, request, patch []byte) error {
	var asked struct {
		Request struct {
			Kind   metav1.GroupVersionKind `json:"kind"`
			Object json.RawMessage         `json:"object"`
		} `json:"request"`
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		return err
	}
	operations, err := jsonpatch.Parse(patch)
	if err != nil {
		return err
	}
	patched, err := operations.Apply(ctx, asked.Request.Object)
	if err != nil {
		return err
	}
	var said metav1.TypeMeta
	if err := json.Unmarshal(patched, &said); err != nil {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{schema.GroupVersionKind(asked.Request.Kind), said.GroupVersionKind()} {
		if obj, err := kinds.New(kind); err == nil {
			if err := amount.CheckJSON(obj, patched); err != nil {
				return err
			}
		}
	}
	return nil
}

// reviewDecoder returns a decoder like the library's, for reviews of both versions.
func reviewDecoder() runtime.Decoder {
	known := runtime.NewScheme()
	utilruntime.Must(admissionv1.AddToScheme(known))
	utilruntime.Must(admissionv1beta1.AddToScheme(known))
	return serializer.NewCodecFactory(known).LegacyCodec(admissionv1beta1.SchemeGroupVersion, admissionv1.SchemeGroupVersion)
}

// review is the answer of a webhook.
type review struct {
	patch []byte
	// refuse returns a review that refuses the request, with a status.
	refuse func(*metav1.Status) any
}

// decodeReview decodes the answer of a webhook. It returns nil if that is no review
// with a response.
func decodeReview(decoder runtime.Decoder, answer []byte) *review {
	var stable admissionv1.AdmissionReview
	if _, _, err := decoder.Decode(answer, nil, &stable); err == nil && stable.Response != nil {
		return &review{stable.Response.Patch, func(status *metav1.Status) any {
			stable.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
			stable.Response = &admissionv1.AdmissionResponse{UID: stable.Response.UID, Result: status, Warnings: stable.Response.Warnings}
			return &stable
		}}
	}
	var beta admissionv1beta1.AdmissionReview
	if _, _, err := decoder.Decode(answer, nil, &beta); err == nil && beta.Response != nil {
		return &review{beta.Response.Patch, func(status *metav1.Status) any {
			beta.SetGroupVersionKind(admissionv1beta1.SchemeGroupVersion.WithKind("AdmissionReview"))
			beta.Response = &admissionv1beta1.AdmissionResponse{UID: beta.Response.UID, Result: status, Warnings: beta.Response.Warnings}
			return &beta
		}}
	}
	return nil
}
