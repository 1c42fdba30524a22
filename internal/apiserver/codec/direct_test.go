package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// versionsByKind maps "apps/v1 Deployment" to the version of a built-in kind.
func versionsByKind() map[string]*resource.Version {
	versions := map[string]*resource.Version{}
	for _, r := range all.All() {
		for i := range r.Versions {
			v := &r.Versions[i]
			if _, custom := v.New().(*unstructured.Unstructured); !custom {
				versions[v.GroupVersion.String()+" "+r.Kind] = v
			}
		}
	}
	return versions
}

// sameDecoded fails if decodeFast accepts a body that sigs.k8s.io/json
// decodes differently or with errors. It returns whether decodeFast accepted
// it.
func sameDecoded(t *testing.T, v *resource.Version, body []byte) (accepted bool) {
	t.Helper()
	got, want := v.New(), v.New()
	accepted = decodeFast(got, body)
	if !accepted {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("a body with faults left something behind: %s", body)
		}
		return false
	}
	strict, err := kjson.UnmarshalStrict(body, want)
	if err != nil || len(strict) > 0 {
		t.Errorf("accepted, but %v %v: %s", err, strict, body)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded otherwise: %s\n%+v\n%+v", body, got, want)
	}
	return true
}

// decodeFast accepts the bodies that upstream accepted, of all kinds.
func TestDecodeFast(t *testing.T) {
	versions := versionsByKind()
	for _, file := range []string{"create", "update"} {
		answers, err := resourcetest.Answers(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			v := versions[a.Kind]
			if v == nil {
				continue
			}
			if !sameDecoded(t, v, a.Request) && a.Code < 300 {
				t.Errorf("%s %s is not accepted: %s", a.Kind, a.Case, a.Request)
			}
		}
	}
}

// decodeFast agrees with sigs.k8s.io/json on bodies with a random change.
func TestDecodeFastCorrupted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	versions := versionsByKind()
	answers, err := resourcetest.Answers("create")
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for range 20_000 {
		a := answers[random.IntN(len(answers))]
		v := versions[a.Kind]
		if v == nil {
			continue
		}
		if sameDecoded(t, v, corrupt(random, a.Request)) {
			accepted++
		}
	}
	if accepted == 0 {
		t.Error("no changed body was accepted")
	}
}

// replacements are values that replace a value of a body.
var replacements = []string{"null", "true", "7", "-1", "1.5", "1e3", "99999999999999999999", `""`, `"a"`, `"1"`, `"2024-01-02T03:04:05Z"`, `"\ud800"`, "\"\xff\"", "{}", "[]", "[null]", `[""]`, `{"a":null}`, `{"a":"b","a":"c"}`}

// corrupt changes one token of a JSON text: it replaces a value, changes the
// case of a name, or repeats a name.
func corrupt(random *rand.Rand, body []byte) []byte {
	var spans [][2]int
	decoder := json.NewDecoder(bytes.NewReader(body))
	for {
		start := int(decoder.InputOffset())
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if _, structure := token.(json.Delim); !structure {
			for bytes.IndexByte([]byte(" ,:\n"), body[start]) >= 0 {
				start++
			}
			spans = append(spans, [2]int{start, int(decoder.InputOffset())})
		}
	}
	if len(spans) == 0 {
		return body
	}
	at := spans[random.IntN(len(spans))]
	token := body[at[0]:at[1]]
	changed := replacements[random.IntN(len(replacements))]
	if name := at[1] < len(body) && body[at[1]] == ':'; name {
		changed = string(bytes.ToUpper(token))
		if random.IntN(2) == 0 {
			changed = fmt.Sprintf("%s:null,%s", token, token)
		}
	}
	return append(append(append([]byte(nil), body[:at[0]]...), changed...), body[at[1]:]...)
}

func BenchmarkDecodeJSON(b *testing.B) {
	answers, err := resourcetest.Answers("create")
	if err != nil {
		b.Fatal(err)
	}
	v := versionsByKind()["v1 Pod"]
	var body []byte
	for _, a := range answers {
		if a.Kind == "v1 Pod" && a.Code < 300 {
			body = a.Request
			break
		}
	}
	decode := func(b *testing.B, into func(runtime.Object) error) {
		b.ReportAllocs()
		for b.Loop() {
			if err := into(v.New()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("accepted", func(b *testing.B) {
		decode(b, func(obj runtime.Object) error {
			_, _, err := DecodeJSON(obj, v.GroupVersion.WithKind("Pod"), body, true)
			return err
		})
	})
	b.Run("strict", func(b *testing.B) {
		decode(b, func(obj runtime.Object) error {
			_, err := kjson.UnmarshalStrict(body, obj)
			return err
		})
	})
}
