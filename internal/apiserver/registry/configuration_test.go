package registry

import (
	"reflect"
	"testing"
)

func TestConfiguration(t *testing.T) {
	for _, test := range []struct {
		body  string
		plain bool
		want  map[string]any
	}{
		{`{"a":{"b":[1,"x",true,null]}}`, true, map[string]any{"a": map[string]any{"b": []any{int64(1), "x", true, nil}}}},
		{"{\n  \"a\": -3\n}\n", true, map[string]any{"a": int64(-3)}},
		{"a: 1\n", false, map[string]any{"a": int64(1)}},
		{`{"a":1.0}`, false, map[string]any{"a": int64(1)}},
		{`{"a":1.5}`, false, map[string]any{"a": 1.5}},
		{`{"a":"\n"}`, false, map[string]any{"a": "\n"}},
		{`{a: 1}`, false, map[string]any{"a": int64(1)}},
		{`{"<<":{"a":1}}`, false, map[string]any{"<<": map[string]any{"a": int64(1)}}},
	} {
		got, plain, err := (&Patch{body: []byte(test.body)}).configuration()
		if err != nil || plain != test.plain || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %#v, plain %v, %v", test.body, got, plain, err)
		}
	}
	for _, body := range []string{"", `{"a":`, "- a", `{"a":1,"a":2}`} {
		if _, plain, _ := (&Patch{body: []byte(body)}).configuration(); plain {
			t.Errorf("%s is not plain", body)
		}
	}
}
