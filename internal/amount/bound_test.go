package amount

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// inRange returns texts that are accepted, with quantities among them.
func inRange() []string {
	return []string{
		"0", "1", "-1.5", "100m", "1.5Gi", "1E", "1Ei", "1e3", "1E100", "1e-100", "+1e+199", "1e0000000000000000005", ".5", "7.",
		strings.Repeat("9", 64), strings.Repeat("9", 64) + "e99", "0." + strings.Repeat("0", 100) + "1",
		"", "none", "1e", "1e99999999999999999999", "3e48219b",
	}
}

// outOfRange returns quantities that are refused.
func outOfRange() []string {
	return []string{
		"1e900000000", "1E900000000", "1e+900000000", "-1e900000000", "+1.5e900000000", "1e-900000000", " 1e900000000 ",
		"e900000000", ".e900000000", "0e900000000", ".5e900000000", "1e2147483647", "1e-2147483648", "1e4294967297",
		"1e201", "1e-201", "10e200", strings.Repeat("9", 201), strings.Repeat("1", 100) + "e150", "0." + strings.Repeat("0", 300) + "1",
	}
}

func TestRange(t *testing.T) {
	for _, text := range inRange() {
		if err := Check(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range outOfRange() {
		var outside *RangeError
		if q, err := Parse(text); !errors.As(err, &outside) || !q.IsZero() {
			t.Errorf("%q is %v, %v", text, q, err)
		}
	}
	if q, err := Parse("1.5Gi"); err != nil || q.Value() != 3<<29 {
		t.Errorf("1.5Gi is %v, %v", q, err)
	}
}

// TestUntypedText checks text of fields that need not be quantities.
func TestUntypedText(t *testing.T) {
	for _, text := range append(inRange(), strings.Repeat("some text ", 100), "1e5"+strings.Repeat("x", 300), strings.Repeat("9", 300)+" bottles") {
		if err := CheckUntyped(text); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	for _, text := range append(outOfRange(), strings.Repeat("9", 300)+"Ki", "1e"+strings.Repeat("0", 300)+"900000000") {
		if err := CheckUntyped(text); err == nil {
			t.Errorf("%.40q is accepted", text)
		}
	}
}

// TestStoredQuantities checks the bounds for what is read back from the store.
func TestStoredQuantities(t *testing.T) {
	for text, refused := range map[string]bool{
		"1Gi": false, "1800e199": false, "1e999": false, strings.Repeat("9", 900): false, "1e-900": false,
		"1e1001": true, "1e900000000": true, "1e-900000000": true, strings.Repeat("9", 1001): true,
	} {
		quota := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"cpu": resource.MustParse("7")}}}
		raw := fmt.Sprintf(`{"status":{"used":{"cpu":%q}}}`, text)
		if err := CheckStoredJSON(quota, []byte(raw)); (err != nil) != refused || refused && !strings.Contains(err.Error(), "between 1e-1000 and 1e1000") {
			t.Errorf("%.40s in JSON: %v", text, err)
		}
		field := func(number protowire.Number, content string) string {
			return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), content))
		}
		message := field(3, field(2, field(1, "cpu")+field(2, field(1, text)))) // status, used, an entry
		if err := CheckStoredProtobuf(quota, []byte(message)); (err != nil) != refused {
			t.Errorf("%.40s in protobuf: %v", text, err)
		}
	}
}

// A quantity that is written back as it was read must be accepted again.
func TestCanonicalFormsAreInRange(t *testing.T) {
	for _, text := range append(inRange(), strings.Repeat("9", 64)+"0e98", "1"+strings.Repeat("0", 63)+"e99", strings.Repeat("1", 100)+"e100", "-"+strings.Repeat("9", 200)+"."+strings.Repeat("1", 50)) {
		if err := Check(text); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			continue // no quantity
		}
		if err := Check(q.String()); err != nil {
			t.Errorf("%s is written as %s: %v", text, q.String(), err)
		}
	}
}

// document returns a pod whose second container has an amount of memory, and
// text that looks like a quantity elsewhere.
func document(memory string) string {
	return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"p","labels":{"commit":"3e48219"},"annotations":{"e":"1e900000000"}},"unknown":[[{"limits":{"memory":"1e900000000"}}]],
"spec":{"nodeName":"1e900000000","containers":[{"name":"a"},{"name":"b","args":["1e900000000"],"resources":{"limits":{"cpu":"1","memory":%s}}}]}}`, memory)
}

const memoryPath = "spec.containers[1].resources.limits[memory]: "

// checkRefusal checks that err names a field if it is wanted, and is nil if not.
func checkRefusal(t *testing.T, what string, err error, wanted bool) {
	t.Helper()
	var outside *RangeError
	if !wanted && err != nil || wanted && (!errors.As(err, &outside) || !strings.HasPrefix(err.Error(), memoryPath)) {
		t.Errorf("%s: %v", what, err)
	}
}

func TestQuantitiesInJSON(t *testing.T) {
	check := func(text string, refused bool) {
		raw := document(text)
		checkRefusal(t, "JSON "+text, CheckJSON(&corev1.Pod{}, []byte(raw)), refused)
		checkRefusal(t, "JSON of a ConfigMap "+text, CheckJSON(&corev1.ConfigMap{}, []byte(raw)), false)
		var content any
		if err := json.Unmarshal([]byte(raw), &content); err != nil {
			return // a number that Go has no type for
		}
		checkRefusal(t, "value "+text, CheckValue(&corev1.Pod{}, content), refused)
		encoded, err := direct.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		checkRefusal(t, "CBOR "+text, CheckCBOR(&corev1.Pod{}, encoded), refused)
		checkRefusal(t, "CBOR of a ConfigMap "+text, CheckCBOR(&corev1.ConfigMap{}, encoded), false)
	}
	for _, text := range inRange() {
		check(fmt.Sprintf("%q", text), false)
	}
	for _, text := range outOfRange() {
		check(fmt.Sprintf("%q", text), true)
	}
	check("1e900000000", true)
	check(`"1e3","memory":"1e900000000"`, true)
	check("null", false)
	check(`{"a":["1e900000000"]}`, false)
	check(`{"a":`, false)
	check(`"1e900000000"`+strings.Repeat(" ", 100)+"]", true)
	check("\"\u20031e900000000\u2003\"", true)
	checkRefusal(t, "a small number", CheckJSON(&corev1.Pod{}, []byte(document(" -1E-900000000\n"))), true)
}

// Decoders of JSON decode each of several fields of one name, and some ignore
// the case of names.
func TestRepeatedFieldsInJSON(t *testing.T) {
	for body, refused := range map[string]bool{
		`{"spec":{"hard":{"cpu":"1e900000000","cpu":"1"}}}`:             true,
		`{"spec":{"hard":{"cpu":"1e900000000"}},"spec":{"hard":{}}}`:    true,
		`{"SPEC":{"Hard":{"cpu":"1e900000000"}}}`:                       true,
		`{"spec":{"hard":{"cpu":"1e900000000"`:                          true,
		`{"spec":` + strings.Repeat("[", 20000) + `"1e900000000"`:       false,
		`{"spec":{"hard":{"cpu":"1"},"scopes":["1e900000000"]}}`:        false,
		`{"spec":"1e900000000"}`:                                        false,
		`["1e900000000"]`:                                               false,
		`{"status":{"used":{"1e900000000":"1"}},"a":"1e900000000"}`:     false,
		`{"spec":{"hard":null},"a":1e900000000,"status":{"used":[{}]}}`: false,
	} {
		if err := CheckJSON(&corev1.ResourceQuota{}, []byte(body)); (err != nil) != refused {
			t.Errorf("%.80s: %v", body, err)
		}
	}
	metrics := []corev1.ResourceList{}
	if err := CheckJSON(&metrics, []byte(`[{},{"cpu":"1e900000000"}]`)); err == nil || !strings.HasPrefix(err.Error(), "[1][cpu]: ") {
		t.Errorf("a list: %v", err)
	}
}

// Every text is found that the prefilter must find, wherever it starts, and
// what objects usually contain is not.
func TestSuspiciousDocuments(t *testing.T) {
	for _, text := range outOfRange() {
		for i := range 4 {
			if body := fmt.Sprintf(`{%s"a":%q}`, strings.Repeat(" ", i), text); !Suspicious([]byte(body)) {
				t.Errorf("%s is not suspicious", body)
			}
		}
	}
	for _, body := range []string{
		"", "{}", `{"a":100}`, `{"a":"1e99"}`, `{"uid":"3e482190-1e12-4e99-8123-0e1234567890"}`, `{"image":"a@sha256:1e900000000abcdef1e123"}`,
		`{"time":"2026-01-02T03:04:05.123456Z"}`, `{"name":"node-1e100-a"}`, `{"path":"/release100/e2e123"}`, strings.Repeat("9", 64),
	} {
		if Suspicious([]byte(body)) {
			t.Errorf("%s is suspicious", body)
		}
	}
}

// placeholder is a quantity whose text has as many bytes as huge has.
const placeholder, huge = "12345678901", "1e900000000"

func TestQuantitiesInProtobuf(t *testing.T) {
	list := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse(placeholder)}
	message := func(m interface{ Marshal() ([]byte, error) }) []byte {
		raw, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b", Resources: corev1.ResourceRequirements{Limits: list}}}}}
	pod.Labels = map[string]string{"a": huge, "b": "3e48219"}
	volume := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(placeholder))}}}}}}
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{Name: "d", Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(placeholder)}}}}}}
	for _, test := range []struct {
		into any
		raw  []byte
		at   string
	}{
		{&corev1.Pod{}, message(pod), memoryPath},
		{&corev1.Pod{}, message(volume), "spec.volumes[1].emptyDir.sizeLimit: "},
		{&resourcev1.ResourceSlice{}, message(slice), "spec.devices[0].capacity[memory].value: "},
		{&corev1.ResourceQuota{}, message(&corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Used: list}}), "status.used[memory]: "},
	} {
		if err := CheckProtobuf(test.into, test.raw); err != nil {
			t.Errorf("%s%v", test.at, err)
		}
		raw := []byte(strings.ReplaceAll(string(test.raw), placeholder, huge))
		if err := CheckProtobuf(test.into, raw); err == nil || !strings.HasPrefix(err.Error(), test.at+`the quantity "1e900000000"`) {
			t.Errorf("%s%v", test.at, err)
		}
		if err := CheckProtobuf(&corev1.ConfigMap{}, raw); err != nil {
			t.Errorf("as a ConfigMap: %v", err)
		}
	}
	secret := message(&corev1.Secret{Data: map[string][]byte{huge: []byte(huge)}, StringData: map[string]string{"a": huge}})
	if err := CheckProtobuf(&corev1.Secret{}, secret); err != nil {
		t.Error(err)
	}
}

// The generated decoders accept more than the format allows.
func TestUnusualProtobuf(t *testing.T) {
	field := func(number protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	entry := func(value []byte) []byte { return field(2, field(1, field(1, value))) } // spec, an entry of hard, its key or value
	quantity := field(1, []byte(huge))
	groups := []byte(strings.Repeat("\x2b", 1<<20)) // each begins a group, as field 5, in the one before
	overlong := append(protowire.AppendVarint(nil, 1<<35|1<<3|2), byte(len(huge)))
	for name, test := range map[string]struct {
		message []byte
		want    error // nil: it is left to the decoder
	}{
		"groups in a quantity": {field(2, field(1, field(2, groups))), errUnreadable},
		"a group":              {field(2, groups[:1]), errUnreadable},
		"a tag of 36 bits":     {field(2, field(1, field(2, append(overlong, huge...)))), errUnreadable},
		"a number for a value": {field(2, field(1, append([]byte{2 << 3, byte(len(quantity))}, quantity...))), errUnreadable},
		"a value of no length": {append(field(2, field(1, []byte{2<<3 | 1, 0})), entry(quantity)...), errUnreadable},
		"a value cut off":      {entry([]byte("k"))[:4], nil},
		"a tag cut off":        {[]byte{0x80}, nil},
		"another field":        {field(1, groups), nil},
	} {
		if err := CheckProtobuf(&corev1.ResourceQuota{}, test.message); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// The decoder of CBOR puts text together from chunks, and encodes bytes with a
// tag.
func TestUnusualCBOR(t *testing.T) {
	base64Text, err := base64.StdEncoding.DecodeString("1e900000")
	if err != nil {
		t.Fatal(err)
	}
	quota := func(value string) string { return "\xa1\x64spec\xa1\x44hard\xa1\x63cpu" + value }
	for name, test := range map[string]struct {
		document, want string
	}{
		"text":                {quota("\x6b" + huge), "spec.hard[cpu]: "},
		"bytes":               {quota("\x4b" + huge), "spec.hard[cpu]: "},
		"with its tag":        {"\xd9\xd9\xf7" + quota("\x6b"+huge), "spec.hard[cpu]: "},
		"in a tag for base64": {"\xd6" + quota("\x4b"+huge), "spec.hard[cpu]: "},
		"chunks":              {quota("\x7f\x621e\x69900000000\xff"), "spec.hard[cpu]: "},
		"base64":              {quota("\xd6\x46" + string(base64Text)), errUnreadable.Error()},
		"a long tag":          {quota("\xd8\x16\x46" + string(base64Text)), errUnreadable.Error()},
		"endless maps":        {"\xbf\x7f\x62sp\x62ec\xff\xbf\x64hard\xbf\x63cpu\x6b" + huge + "\xff\xff\xff", "spec.hard[cpu]: "},
		"after other fields":  {"\xa3\x61a\x82\xf6\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00\x01\x6b" + huge + quota("\x6b" + huge)[1:], "spec.hard[cpu]: "},
		"elsewhere":           {"\xa1\x61a\xa1\x64hard\xa1\x63cpu\x6b" + huge, ""},
		"an array":            {"\xa1\x64spec\x81\x6b" + huge, ""},
		"cut off":             {quota("\x6c" + huge), ""},
		"deep":                {strings.Repeat("\x81", 1<<20), ""},
		"endless":             {strings.Repeat("\x9f", 1<<20), ""},
		"no length":           {"\xbb\xff\xff\xff\xff\xff\xff\xff\xff", ""},
	} {
		err := CheckCBOR(&corev1.ResourceQuota{}, []byte(test.document))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// BenchmarkCheckJSON is the cost of the check for a pod without suspicious text,
// and for the same pod with one.
func BenchmarkCheckJSON(b *testing.B) {
	usual := strings.ReplaceAll(strings.ReplaceAll(document(`"128Mi"`), "1e900000000", "usual"), "3e48219", "3e48219b")
	usual = `{"uid":"3e482190-1e12-4e99-8123-0e1234567890","note":"` + strings.Repeat("some text of 1234 letters, ", 100) + `",` + usual[1:]
	for name, body := range map[string]string{"usual": usual, "suspicious": strings.Replace(usual, "3e48219b", "3e48219", 1)} {
		b.Run(name, func(b *testing.B) {
			document := []byte(body)
			b.SetBytes(int64(len(document)))
			b.ReportAllocs()
			for b.Loop() {
				if err := CheckJSON(&corev1.Pod{}, document); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheckStoredProtobuf is the cost of the check of a stored pod, and that of
// decoding it, which follows.
func BenchmarkCheckStoredProtobuf(b *testing.B) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(document(`"128Mi"`)), pod); err != nil {
		b.Fatal(err)
	}
	for range 3 {
		pod.Spec.Containers = append(pod.Spec.Containers, pod.Spec.Containers...)
	}
	pod.Status.ContainerStatuses = make([]corev1.ContainerStatus, len(pod.Spec.Containers))
	message, err := pod.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	for name, run := range map[string]func() error{
		"check":  func() error { return CheckStoredProtobuf(&corev1.Pod{}, message) },
		"decode": func() error { return new(corev1.Pod).Unmarshal(message) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(message)))
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
