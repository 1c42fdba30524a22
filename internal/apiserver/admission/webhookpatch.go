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
	review, patch := decodeReview(e.decoder(), answer)
	if len(patch) == 0 || !amount.Suspicious(patch) && !amount.Suspicious(request) {
		return answer
	}
	err := checkPatch(ctx, kinds, request, patch)
	if err == nil {
		return answer
	}
	refusal, err := json.Marshal(refusalOf(review, fmt.Sprintf("the webhook's patch is refused: %v", err)))
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

// decodeReview decodes the answer of a webhook, and returns its patch. review is
// nil if the answer is no review.
func decodeReview(decoder runtime.Decoder, answer []byte) (review runtime.Object, patch []byte) {
	var stable admissionv1.AdmissionReview
	if _, _, err := decoder.Decode(answer, nil, &stable); err == nil {
		if stable.Response != nil {
			patch = stable.Response.Patch
		}
		return &stable, patch
	}
	var beta admissionv1beta1.AdmissionReview
	if _, _, err := decoder.Decode(answer, nil, &beta); err == nil {
		if beta.Response != nil {
			patch = beta.Response.Patch
		}
		return &beta, patch
	}
	return nil, nil
}

// refusalOf turns a review with a response into one that refuses the request.
func refusalOf(review runtime.Object, message string) runtime.Object {
	status := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonBadRequest, Code: http.StatusBadRequest, Message: message}
	switch r := review.(type) {
	case *admissionv1.AdmissionReview:
		r.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		r.Response = &admissionv1.AdmissionResponse{UID: r.Response.UID, Result: status, Warnings: r.Response.Warnings}
	case *admissionv1beta1.AdmissionReview:
		r.SetGroupVersionKind(admissionv1beta1.SchemeGroupVersion.WithKind("AdmissionReview"))
		r.Response = &admissionv1beta1.AdmissionResponse{UID: r.Response.UID, Result: status, Warnings: r.Response.Warnings}
	}
	return review
}
