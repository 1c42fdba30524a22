package protomessage

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
)

// TestFields reads messages, some of which the generated decoders accept although
// the format does not allow them.
func TestFields(t *testing.T) {
	text := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "ab")
	number := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	for name, test := range map[string]struct {
		message []byte
		fields  string
		err     error
	}{
		"empty":                {nil, "", nil},
		"usual":                {append(number, text...), "1:0: 3:2:ab ", nil},
		"cut off in a tag":     {[]byte{0x80}, "", ErrMalformed},
		"cut off in a value":   {text[:len(text)-1], "", ErrMalformed},
		"a group":              {[]byte{0x2b, 0x2c}, "", ErrUnusual},
		"a tag of 36 bits":     {append(protowire.AppendVarint(nil, 1<<35|1<<3|2), 0), "", ErrUnusual},
		"a varint of 70 bits":  {[]byte(strings.Repeat("\xff", 9) + "\x7f"), "", ErrUnusual},
		"unusual after a text": {append(text, 0x2b), "3:2:ab ", ErrUnusual},
	} {
		got := ""
		err := EachField(test.message, func(number protowire.Number, kind protowire.Type, content []byte) error {
			got += fmt.Sprintf("%d:%d:%s ", number, kind, content)
			return nil
		})
		if got != test.fields || !errors.Is(err, test.err) || test.err == nil && err != nil {
			t.Errorf("%s: %q, %v, want %q, %v", name, got, err, test.fields, test.err)
		}
	}
}

// TestEntries checks that an entry of a map has a key and a value in bytes.
func TestEntries(t *testing.T) {
	visit := func(protowire.Number, []byte) error { return nil }
	if err := EachInEntry([]byte{1 << 3, 0}, visit); !errors.Is(err, ErrUnusual) {
		t.Errorf("a number as the key: %v", err)
	}
	for size := range 9 {
		if err := EachInEntry(append([]byte{2<<3 | 1}, make([]byte, size)...), visit); !errors.Is(err, ErrUnusual) {
			t.Errorf("%d of eight bytes as the value: %v", size, err)
		}
	}
	if err := EachInEntry([]byte{3 << 3, 0, 1<<3 | 2, 0}, visit); err != nil {
		t.Errorf("another field: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	spec, _ := reflect.TypeFor[corev1.Pod]().FieldByName("Spec")
	if number, ok := NumberOf(spec); number != 2 || !ok {
		t.Errorf("spec has the number %d, %t", number, ok)
	}
	meta, _ := reflect.TypeFor[corev1.Pod]().FieldByName("TypeMeta")
	if number, ok := NumberOf(meta); ok {
		t.Errorf("the type has the number %d", number)
	}
}
