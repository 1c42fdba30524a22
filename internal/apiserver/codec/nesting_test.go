package codec

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// nested returns a schema with nested fields "not".
func nested(t *testing.T, levels int) []byte {
	t.Helper()
	const notField, schemaField, versionSchemaField, versionsField, specField = 28, 1, 4, 7, 2
	buffer := make([]byte, levels*8)
	at, size := len(buffer), 0
	for range levels {
		head := protowire.AppendVarint(protowire.AppendTag(nil, notField, protowire.BytesType), uint64(size))
		at -= len(head)
		copy(buffer[at:], head)
		size += len(head)
	}
	message := buffer[at:]
	for _, field := range []protowire.Number{schemaField, versionSchemaField, versionsField, specField} {
		message = protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), message)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, Raw: message}
	raw, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(protobufPrefix), raw...)
}

// A protobuf body with deep nesting is refused before it is decoded, since
// the decoder would overflow the stack.
func TestProtobufNesting(t *testing.T) {
	kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	if _, err := decodeProtobuf(&apiextensionsv1.CustomResourceDefinition{}, kind, nested(t, 500000)); !errors.Is(err, errNesting) {
		t.Errorf("500,000 levels: %v", err)
	}
	var shallow apiextensionsv1.CustomResourceDefinition
	if _, err := decodeProtobuf(&shallow, kind, nested(t, 9000)); err != nil || shallow.Spec.Versions[0].Schema.OpenAPIV3Schema.Not == nil {
		t.Errorf("9,000 levels: %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Data: map[string][]byte{"text": []byte(strings.Repeat("some text. ", 50000)), "zeros": make([]byte, 100000)}}
	raw, err := secret.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if nestsTooDeep(raw, maxNesting) {
		t.Error("a large secret is taken for a deep one")
	}
}
