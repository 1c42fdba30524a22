package admission

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// webhookCall returns the bodies of a call about a pod of 10 KB with an annotation, and
// of an answer with a patch.
func webhookCall(tb testing.TB, annotation, patch string) (request, answer []byte) {
	tb.Helper()
	object := pod(nil)
	object.APIVersion, object.Kind = "v1", "Pod"
	object.Annotations = map[string]string{"note": strings.Repeat("some text of 1234 letters, ", 400), "cpu": annotation}
	encoded, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}}
	review.Request = &admissionv1.AdmissionRequest{UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}}
	review.Request.Object.Raw = encoded
	if request, err = json.Marshal(review); err != nil {
		tb.Fatal(err)
	}
	review.Request, review.Response = nil, &admissionv1.AdmissionResponse{UID: "u", Allowed: true, Patch: []byte(patch), PatchType: new(admissionv1.PatchTypeJSONPatch)}
	if answer, err = json.Marshal(review); err != nil {
		tb.Fatal(err)
	}
	return request, answer
}

// TestPatchesOfAnswers checks which answers of webhooks are refused, and that others are
// passed on as they are.
func TestPatchesOfAnswers(t *testing.T) {
	e := newMutatingWebhookExtension(nil)
	const label = `[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]`
	for name, test := range map[string]struct {
		annotation, patch string
		refused           bool
	}{
		"usual":                    {"1", label, false},
		"beside a suspicious text": {"1e900000000", label, false},
		"a copy of it":             {"1e900000000", `[{"op": "add", "path": "/spec/overhead", "value": {}}, {"op": "copy", "from": "/metadata/annotations/cpu", "path": "/spec/overhead/cpu"}]`, true},
		"a quantity":               {"1", `[{"op": "add", "path": "/spec/overhead", "value": {"cpu": "1e900000000"}}]`, true},
	} {
		request, answer := webhookCall(t, test.annotation, test.patch)
		got := e.checked(t.Context(), scheme.Scheme, request, answer)
		if test.refused != strings.Contains(string(got), "is out of range") || !test.refused && string(got) != string(answer) {
			t.Errorf("%s: %s", name, got)
		}
		var said admissionv1.AdmissionReview
		if err := json.Unmarshal(got, &said); err != nil || said.Response == nil || said.Response.Allowed == test.refused || said.Response.UID != "u" {
			t.Errorf("%s: %v, %s", name, err, got)
		}
	}
	if got := e.checked(t.Context(), scheme.Scheme, nil, []byte("no review")); string(got) != "no review" {
		t.Errorf("what is no review becomes %s", got)
	}
}

// BenchmarkWebhookAnswer is what the check adds to each call of a mutating webhook.
func BenchmarkWebhookAnswer(b *testing.B) {
	e := newMutatingWebhookExtension(nil)
	for name, annotation := range map[string]string{"usual": "1", "suspicious": "1e900000000"} {
		request, answer := webhookCall(b, annotation, `[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := e.checked(b.Context(), scheme.Scheme, request, answer); len(got) != len(answer) {
					b.Fatalf("%s", got)
				}
			}
		})
	}
}
