package simnode

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnnotationsOutOfRange checks that a pod cannot keep a simulated node busy
// by a quantity that takes hours to parse.
func TestAnnotationsOutOfRange(t *testing.T) {
	for text, want := range map[string]string{"1e900000000": "0", "1e-900000000": "0", "-1": "0", "": "0", "1500m": "1500m"} {
		used := annotated(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationMemory: text}}}, AnnotationMemory)
		if used.String() != want {
			t.Errorf("%q is %s, want %s", text, used.String(), want)
		}
	}
}
