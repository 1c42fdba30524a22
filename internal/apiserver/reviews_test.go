package apiserver_test

import (
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// Each case is the spec of a review and a part of its answer.
func TestReviewedSelectors(t *testing.T) {
	s := apiservertest.Start(t)
	for name, test := range map[string]struct {
		spec, want string
		code       int
	}{
		"understood": {
			spec: `{"user":"u","resourceAttributes":{"fieldSelector":{"rawSelector":"a=b"},"labelSelector":{"requirements":[{"key":"a","operator":"Exists"}]}}}`,
			code: 201, want: `"status":{"allowed":false}`,
		},
		"not understood": {
			spec: `{"user":"u","resourceAttributes":{"fieldSelector":{"rawSelector":"a in b"},"labelSelector":{"rawSelector":"&"}}}`,
			code: 201, want: `"evaluationError":"spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"`,
		},
		"understood in part": {
			spec: `{"user":"u","resourceAttributes":{"labelSelector":{"requirements":[{"key":"a","operator":"Exists"},{"key":"b","operator":"Near"}]}}}`,
			code: 201, want: `"evaluationError":"spec.resourceAttributes.labelSelector partially ignored due to parse error"`,
		},
		"of nobody": {
			spec: `{"resourceAttributes":{}}`,
			code: 422, want: `"message":".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified"`,
		},
	} {
		body := `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":` + test.spec + `}`
		code, data, _ := call(t, s, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body, "X-Test-User", "admin")
		if code != test.code || !strings.Contains(string(data), test.want) {
			t.Errorf("%s: %d %s", name, code, data)
		}
	}
}
