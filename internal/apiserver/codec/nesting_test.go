package codec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/protomessage"
)

// The fields of a definition down to the fields "not" and "properties" of its
// schemas.
const notField, propertiesField, schemaField, versionSchemaField, versionsField, specField = 28, 29, 1, 4, 7, 2

// field returns a field of a message.
func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// nested returns a schema with nested fields "not". Each level begins with start.
func nested(t *testing.T, levels int, start []byte) []byte {
	t.Helper()
	buffer := make([]byte, levels*(8+len(start)))
	at, size := len(buffer), 0
	for range levels {
		head := protowire.AppendVarint(protowire.AppendTag(slices.Clone(start), notField, protowire.BytesType), uint64(size))
		at -= len(head)
		copy(buffer[at:], head)
		size += len(head)
	}
	return definition(t, buffer[at:])
}

// definition returns the body of a definition with a schema.
func definition(t *testing.T, message []byte) []byte {
	t.Helper()
	for _, number := range []protowire.Number{schemaField, versionSchemaField, versionsField, specField} {
		message = field(number, message)
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
	if _, err := decodeProtobuf(&apiextensionsv1.CustomResourceDefinition{}, kind, nested(t, 500000, nil)); !errors.Is(err, errNesting) {
		t.Errorf("500,000 levels: %v", err)
	}
	var shallow apiextensionsv1.CustomResourceDefinition
	if _, err := decodeProtobuf(&shallow, kind, nested(t, 9000, nil)); err != nil || shallow.Spec.Versions[0].Schema.OpenAPIV3Schema.Not == nil {
		t.Errorf("9,000 levels: %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Data: map[string][]byte{"text": []byte(strings.Repeat("some text. ", 50000)), "zeros": make([]byte, 100000)}}
	raw, err := secret.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkNesting(secret, raw); err != nil {
		t.Errorf("a large secret: %v", err)
	}
}

// TestUnusualNesting checks messages that the decoders read to the end, and whose
// fields another reader does not find.
func TestUnusualNesting(t *testing.T) {
	kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	const levels = 500000
	for name, start := range map[string][]byte{
		"a tag of 36 bits":       append(protowire.AppendVarint(nil, 1<<35|100<<3), 0),
		"a group":                {0xa3, 0x06, 0xa4, 0x06},
		"a number of 70 bits":    []byte("\xa0\x06" + strings.Repeat("\xff", 9) + "\x7f"),
		"an unknown, usual text": field(100, []byte("text")),
	} {
		_, err := decodeProtobuf(&apiextensionsv1.CustomResourceDefinition{}, kind, nested(t, levels, start))
		if !errors.Is(err, protomessage.ErrUnusual) && !errors.Is(err, errNesting) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An entry of a map whose value says to be eight bytes, and is decoded as text.
	entry := append(field(1, []byte("a")), 2<<3|1, 0)
	_, err := decodeProtobuf(&apiextensionsv1.CustomResourceDefinition{}, kind, definition(t, append(field(100, make([]byte, maxNesting*leastLevel)), field(propertiesField, entry)...)))
	if !errors.Is(err, protomessage.ErrUnusual) {
		t.Errorf("a value of eight bytes: %v", err)
	}
}
