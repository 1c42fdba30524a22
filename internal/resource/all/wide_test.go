package all_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// walk calls visit with the path of each list and map in a type. A path has
// the names of fields, and * for elements. walk enters a type that contains
// itself twice.
func walk(t reflect.Type, at []string, within []reflect.Type, visit func(path []string)) {
	switch t {
	case reflect.TypeFor[apiresource.Quantity](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[intstr.IntOrString](),
		reflect.TypeFor[apiruntime.RawExtension](), reflect.TypeFor[metav1.FieldsV1](), reflect.TypeFor[apiextensionsv1.JSON]():
		return
	}
	again := 0
	for _, outer := range within {
		if outer == t {
			again++
		}
	}
	if again > 1 {
		return
	}
	within = append(slices.Clip(within), t)
	switch t.Kind() {
	case reflect.Pointer:
		walk(t.Elem(), at, within, visit)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Name != "TypeMeta" {
				walk(f.Type, append(slices.Clip(at), f.Name), within, visit)
			}
		}
	case reflect.Slice, reflect.Map:
		if t.Elem().Kind() != reflect.Uint8 {
			at = append(slices.Clip(at), "*")
			visit(at)
			walk(t.Elem(), at, within, visit)
		}
	}
}

// widening makes objects with one long list or map.
type widening struct {
	length      int
	text        func() string // returns the value of strings
	otherLength int           // the length of lists that are not on the path
}

// fill fills v so that the last list of the path has the length, and the lists
// before it one element. depth is the distance from v to the path.
func (w *widening) fill(v reflect.Value, path []string, depth int) {
	const deepest = 3
	switch x := v.Addr().Interface().(type) {
	case *apiresource.Quantity:
		*x = apiresource.MustParse("1")
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(1)
		return
	case *metav1.Time, *metav1.MicroTime, *apiruntime.RawExtension, *metav1.FieldsV1, *apiextensionsv1.JSON:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(w.text())
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		if len(path) > 0 || depth < deepest && v.Type().Elem().Kind() != reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			w.fill(v.Elem(), path, depth)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case !f.IsExported() || f.Name == "TypeMeta":
			case len(path) > 0 && f.Name == path[0]:
				w.fill(v.Field(i), path[1:], 0)
			case depth < deepest:
				w.fill(v.Field(i), nil, depth+1)
			}
		}
	case reflect.Slice, reflect.Map:
		w.fillElements(v, path, depth)
	}
}

func (w *widening) fillElements(v reflect.Value, path []string, depth int) {
	count, rest := 0, path
	switch {
	case len(path) == 1:
		count, rest = w.length, nil
	case len(path) > 1:
		count, rest = 1, path[1:]
	case depth == 1:
		count = w.otherLength
	}
	if count == 0 || v.Type().Elem().Kind() == reflect.Uint8 {
		return
	}
	if v.Kind() == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), count, count))
		for i := range count {
			w.fill(v.Index(i), rest, depth+1)
		}
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := range count {
		element, key := reflect.New(v.Type().Elem()).Elem(), reflect.New(v.Type().Key()).Elem()
		key.SetString("k" + strconv.Itoa(i))
		w.fill(element, rest, depth+1)
		v.SetMapIndex(key, element)
	}
}

// widenings returns constructors for objects with different, equal and empty
// elements, and for objects with other long lists besides the longest.
func widenings(length int) map[string]func() *widening {
	return map[string]func() *widening{
		"different": func() *widening {
			n := 0
			return &widening{length: length, text: func() string { n++; return "x" + strconv.Itoa(n) }}
		},
		"same":  func() *widening { return &widening{length: length, text: func() string { return "same" }} },
		"empty": func() *widening { return &widening{length: length, text: func() string { return "" }} },
		"other lists": func() *widening {
			return &widening{length: length, otherLength: length / 8, text: func() string { return "same" }}
		},
	}
}

// costOf returns what all rules of a kind cost for an object.
func costOf(t *testing.T, r *resource.Resource, path []string, w *widening) costtest.Cost {
	v := &r.Versions[0]
	obj := v.New()
	w.fill(reflect.ValueOf(obj).Elem(), path, 0)
	obj.GetObjectKind().SetGroupVersionKind(v.WithKind(r.Kind))
	obj.SetName("it")
	if r.Namespaced {
		obj.SetNamespace("default")
	}
	obj.SetResourceVersion("1")
	request := &resource.RequestContext{
		Now: time.Unix(1_800_000_000, 0), Namespace: "default", GroupVersion: v.GroupVersion, User: &user.DefaultInfo{Name: "u"},
		NamespaceLabels: func() map[string]string { return nil }, Authorized: func(_, _, _, _ string) bool { return true },
	}
	trial := &trial{T: t, resource: r, now: request.Now}
	return costtest.Of(t, func() {
		v.Default(obj)
		hub := v.ToHub(obj)
		trial.rules(request, hub, nil)
		trial.shown(hub)
	})
}

// TestWideObjectsOfEveryKind checks that the cost of a kind's rules grows with
// the size of an object, not with the square of its longest list.
// WIDE_OBJECTS=20000 makes lists that are long enough to measure processor
// time, too, which takes a quarter of an hour.
func TestWideObjectsOfEveryKind(t *testing.T) {
	length, timed := 160, false
	if text := os.Getenv("WIDE_OBJECTS"); text != "" {
		timed = true
		var err error
		if length, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const (
		times  = 8
		linear = 3 * times // linear growth, with room for growing maps; quadratic growth is times × times
	)
	for _, r := range all.All() {
		if r.Virtual() {
			continue
		}
		t.Run(fmt.Sprintf("%s.%s", r.Plural, r.Group), func(t *testing.T) {
			walk(reflect.TypeOf(r.Versions[0].New()), nil, nil, func(path []string) {
				if inTemplate(r, path) { // the same as in a pod
					return
				}
				small := widenings(length / times)
				for name, made := range widenings(length) {
					large := costOf(t, r, path, made())
					if large.Bytes < 1<<20 && large.Processor < time.Second {
						continue
					}
					large = costOf(t, r, path, made()) // the first one may have made what all share, such as CEL's environment
					few := costOf(t, r, path, small[name]())
					if large.Bytes > linear*few.Bytes || timed && large.Processor > linear*few.Processor {
						t.Errorf("%s, %s: %d elements take %d KB and %v, %d take %d KB and %v", strings.Join(path, "."), name, length/times, few.Bytes>>10, few.Processor, length, large.Bytes>>10, large.Processor)
					}
				}
			})
		})
	}
}

// inTemplate reports whether a path is in a pod template.
func inTemplate(r *resource.Resource, path []string) bool {
	of := reflect.TypeOf(r.Versions[0].New())
	for _, name := range path {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if name == "*" {
			continue
		}
		if of == reflect.TypeFor[corev1.PodTemplateSpec]() {
			return true
		}
		f, _ := of.FieldByName(name)
		of = f.Type
	}
	return false
}
