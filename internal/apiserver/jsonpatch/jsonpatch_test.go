package jsonpatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	library "gopkg.in/evanphx/json-patch.v4"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/costtest"
)

// value generates documents in which keys often coincide.
func value(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Just[any](true), rapid.Just[any](1), rapid.Just[any](1.5), rapid.SampledFrom([]any{"", "x", "<a&b>", "é\n"}),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	object := rapid.Custom(func(t *rapid.T) any { return fields(depth).Draw(t, "object") })
	array := rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "array") })
	return rapid.OneOf(append(scalars, object, array, object)...)
}

func fields(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "a/b", "~"}), value(depth-1), 0, 4)
}

func encoded(t *rapid.T, value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// same fails the test unless two results are the same document or the same
// error.
func same(t *rapid.T, what string, got []byte, err error, want []byte, wantErr error) {
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%s: error %v, the library's is %v", what, err, wantErr)
	}
	var a, b any
	if err == nil && (json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b)) {
		t.Fatalf("%s:\n%s\nthe library makes\n%s", what, got, want)
	}
}

// Merge patches have the library's results.
func TestMergeMatchesTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document, patch := encoded(t, fields(4).Draw(t, "document")), encoded(t, value(4).Draw(t, "patch"))
		got, err := Merge(document, patch)
		want, wantErr := library.MergePatch(document, patch)
		same(t, fmt.Sprintf("%s with %s", document, patch), got, err, want, wantErr)
	})
}

// applied applies a patch with the library; panicked reports that it panicked.
func applied(patch, document []byte) (out []byte, err error, panicked bool) { //nolint:revive // the bool belongs to the error
	defer func() { panicked = recover() != nil }()
	operations, err := library.DecodePatch(patch)
	if err != nil {
		return nil, err, false
	}
	out, err = operations.Apply(document)
	return out, err, false
}

// JSON patches have the library's results and error messages.
func TestApplyMatchesTheLibrary(t *testing.T) {
	path := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "a~1b", "~0", "0", "1", "-1", "-", "7", ""}), 1, 4).Draw(t, "parts")
		return "/" + strings.Join(parts, "/")
	})
	rapid.Check(t, func(t *rapid.T) {
		var patch []map[string]any
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			o := map[string]any{"op": rapid.SampledFrom([]string{"add", "remove", "replace", "move", "copy", "test", "jump"}).Draw(t, "op"), "path": path.Draw(t, "path")}
			if rapid.Bool().Draw(t, "has from") {
				o["from"] = path.Draw(t, "from")
			}
			if rapid.Bool().Draw(t, "has value") {
				// The library does not find a null that the patch has set
				// before.
				o["value"] = value(3).Filter(func(v any) bool { return v != nil }).Draw(t, "value")
			}
			patch = append(patch, o)
		}
		document, text := encoded(t, fields(4).Draw(t, "document")), encoded(t, patch)
		want, wantErr, panicked := applied(text, document)
		if panicked {
			return
		}
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parsed.Apply(context.Background(), document)
		same(t, fmt.Sprintf("%s with %s", document, text), got, err, want, wantErr)
	})
}

// Copies, and moves within long lists, are bounded. A patch ends with its
// request.
func TestBounds(t *testing.T) {
	const most = 10 * time.Second // of processor time
	doubling := func(n int) string {
		var operations []string
		for i := range n {
			operations = append(operations, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/%d"}`, i))
		}
		return "[" + strings.Join(operations, ",") + "]"
	}
	long := `{"list":[` + strings.Repeat("1,", 700000) + `1]}`
	front := "[" + strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/list/0","value":1},`, MaxOperations), ",") + "]"
	nested := `[{"op":"add","path":"/n","value":{}}` + strings.Repeat(`,{"op":"add","path":"/m","value":{}},{"op":"move","from":"/n","path":"/m/n"},{"op":"move","from":"/m","path":"/n"}`, 3300) + "]"
	for _, test := range []struct{ name, document, patch, want string }{
		{"copies that double", `{"data":{"x":"` + strings.Repeat("x", 1000) + `"}}`, doubling(40), "Unable to complete the copy, the accumulated size increase of copy is "},
		{"elements that move", long, front, errMoved.Error()},
		{"a long text in many levels", `{"n":{"text":"` + strings.Repeat("x", 1<<20) + `"}}`, nested, ""},
	} {
		patch, err := Parse([]byte(test.patch))
		if err != nil {
			t.Fatal(err)
		}
		cost := costtest.Of(t, func() { _, err = patch.Apply(t.Context(), []byte(test.document)) })
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		if cost.Processor > most {
			t.Errorf("%s: took %v of processor time", test.name, cost.Processor)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	patch, err := Parse([]byte(doubling(2)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := patch.Apply(ended, []byte(`{"data":{}}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a patch of a request that has ended: %v", err)
	}
	deep := []byte(`{"data":` + strings.Repeat(`{"a":`, 9900) + "1" + strings.Repeat("}", 9900) + "}")
	cost := costtest.Of(t, func() { _, err = Merge([]byte(`{"data":{}}`), deep) })
	if err != nil || cost.Processor > most {
		t.Errorf("a merge patch of 60 kB took %v of processor time, %v", cost.Processor, err)
	}
}
