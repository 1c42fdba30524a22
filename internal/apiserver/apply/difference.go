package apply

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// jsonName returns a struct field's name in JSON, "-" for none.
func jsonName(f reflect.StructField) (name string, embedded bool) {
	tag := f.Tag.Get("json")
	if tag == "-" || f.PkgPath != "" && !f.Anonymous {
		return "-", false
	}
	name, _, _ = strings.Cut(tag, ",")
	if name == "" {
		return f.Name, f.Anonymous
	}
	return name, false
}

// difference encodes in which fields two objects of one type differ, as far as
// field ownership depends on it: which fields were added, removed or modified,
// and the keys to find them, but no values. Two pairs of objects with the same
// difference have the same effect on metadata.managedFields.
//
//	object     ::= structure
//	structure  ::= states { field number, difference of the field } 0
//	mapping    ::= states { key, leaf } 0
//	listing    ::= states { keys of the item, difference of the item } 0
//	             | states { 1, rank of the item's identity, difference of the item } 0
//	leaf       ::= added | removed | modified
//
// Equal parts are omitted.
type difference struct {
	out []byte
	// unknown means that a difference could not be encoded, so that the
	// encoding must not be used.
	unknown   bool
	positions []position // of identities in out
}

func (d *difference) reset() { d.out, d.unknown, d.positions = d.out[:0], false, d.positions[:0] }

// The states of a value on one side.
const (
	absent = iota
	null
	empty
	full
)

// The changes of a leaf.
const (
	added    = 1
	removed  = 2
	modified = 3
)

const end = 0

// add encodes the difference of two values, either of which may be absent: the
// zero reflect.Value.
func (d *difference) add(s *shape, l, r reflect.Value) {
	switch s.form {
	case leaf:
		d.addLeaf(l, r)
	case structure:
		d.addStructure(s, l, r)
	case mapping:
		d.addMapping(s, l, r)
	case listing:
		d.addListing(s, l, r)
	default:
		if !l.IsValid() || !r.IsValid() || !reflect.DeepEqual(l.Interface(), r.Interface()) {
			d.unknown = true
		}
	}
}

func (d *difference) addLeaf(l, r reflect.Value) {
	switch {
	case !l.IsValid():
		d.out = append(d.out, added)
	case !r.IsValid():
		d.out = append(d.out, removed)
	case !equalLeaves(l, r):
		d.out = append(d.out, modified)
	}
}

// equalLeaves reports whether two values are equal in JSON.
func equalLeaves(l, r reflect.Value) bool {
	if l.Kind() == reflect.Pointer {
		if l.IsNil() || r.IsNil() {
			return value.Equals(valueOf(l), valueOf(r))
		}
		l, r = l.Elem(), r.Elem()
	}
	switch l.Kind() {
	case reflect.String:
		return l.String() == r.String()
	case reflect.Bool:
		return l.Bool() == r.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return l.Int() == r.Int()
	}
	if equal, ok := equalTimes(l, r); ok {
		return equal
	}
	return reflect.DeepEqual(l.Interface(), r.Interface()) || value.Equals(valueOf(l), valueOf(r))
}

// equalTimes reports whether two times are equal in JSON, where they have
// seconds or microseconds, and the zero time is null. ok is false if they are
// no times.
func equalTimes(l, r reflect.Value) (equal, ok bool) {
	switch l.Type() {
	case reflect.TypeFor[metav1.Time]():
		left, right := l.Field(0).Interface().(time.Time), r.Field(0).Interface().(time.Time)
		return left.IsZero() == right.IsZero() && left.Unix() == right.Unix(), true
	case reflect.TypeFor[metav1.MicroTime]():
		left, right := l.Field(0).Interface().(time.Time), r.Field(0).Interface().(time.Time)
		return left.IsZero() == right.IsZero() && left.UnixMicro() == right.UnixMicro(), true
	}
	return false, false
}

// valueOf returns v as the library's value.
func valueOf(v reflect.Value) value.Value {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return value.NewValueInterface(nil)
		}
		v = v.Elem()
	}
	pointer := reflect.New(v.Type())
	pointer.Elem().Set(v)
	made, err := value.NewValueReflect(pointer.Interface())
	if err != nil {
		return value.NewValueInterface(nil)
	}
	return made
}

// deref returns the value that a pointer points to; ok is false for nil.
func deref(v reflect.Value) (to reflect.Value, ok bool) {
	switch v.Kind() {
	case reflect.Invalid:
		return v, false
	case reflect.Pointer:
		return v.Elem(), !v.IsNil()
	case reflect.Map, reflect.Slice:
		return v, !v.IsNil()
	}
	return v, true
}

// state returns the state of v. some reports whether it has any elements.
func state(v reflect.Value, some bool) byte {
	switch _, ok := deref(v); {
	case !v.IsValid():
		return absent
	case !ok:
		return null
	case !some:
		return empty
	}
	return full
}

// open starts the encoding of a value with elements. close completes it, or
// removes it if neither the elements nor the states differ.
func (d *difference) open() int {
	d.out = append(d.out, 0)
	return len(d.out)
}

func (d *difference) close(opened int, before, after byte) {
	if len(d.out) == opened && before == after {
		d.out = d.out[:opened-1]
		return
	}
	d.out[opened-1] = before<<4 | after | 0x80
	d.out = append(d.out, end)
}

func (d *difference) addStructure(s *shape, l, r reflect.Value) {
	left, leftOK := deref(l)
	right, rightOK := deref(r)
	opened := d.open()
	someLeft, someRight := false, false
	for i := range s.fields {
		f := &s.fields[i]
		var lf, rf reflect.Value
		if leftOK {
			lf = field(f, left)
		}
		if rightOK {
			rf = field(f, right)
		}
		if !lf.IsValid() && !rf.IsValid() {
			continue
		}
		someLeft, someRight = someLeft || lf.IsValid(), someRight || rf.IsValid()
		before := len(d.out)
		d.out = binary.AppendUvarint(d.out, uint64(i)+1)
		begun := len(d.out)
		if d.add(f.shape, lf, rf); len(d.out) == begun {
			d.out = d.out[:before]
		}
	}
	d.close(opened, state(l, someLeft), state(r, someRight))
}

// field returns a struct's field, or the zero Value if JSON omits it.
func field(f *fieldShape, in reflect.Value) reflect.Value {
	v := in.FieldByIndex(f.index)
	if f.entry.CanOmit(v) {
		return reflect.Value{}
	}
	return v
}

func (d *difference) addMapping(s *shape, l, r reflect.Value) {
	left, leftOK := deref(l)
	right, rightOK := deref(r)
	if leftOK && rightOK && sameStrings(left, right) {
		return
	}
	opened := d.open()
	var at reflect.Value // a key, for all lookups
	for _, key := range mapKeys(left, right) {
		var lv, rv reflect.Value
		if leftOK {
			lv = lookUp(left, key, &at)
		}
		if rightOK {
			rv = lookUp(right, key, &at)
		}
		before := len(d.out)
		d.out = appendText(d.out, key)
		begun := len(d.out)
		if d.add(s.items, lv, rv); len(d.out) == begun {
			d.out = d.out[:before]
		}
	}
	d.close(opened, state(l, leftOK && left.Len() > 0), state(r, rightOK && right.Len() > 0))
}

// mapKeys returns the keys of two maps in order. Either may be absent.
func mapKeys(left, right reflect.Value) []string {
	n := 0
	for _, m := range []reflect.Value{left, right} {
		if m.IsValid() {
			n += m.Len()
		}
	}
	keys := make([]string, 0, n)
	for _, m := range []reflect.Value{left, right} {
		if !m.IsValid() || m.Len() == 0 {
			continue
		}
		key := reflect.New(m.Type().Key()).Elem()
		for it := m.MapRange(); it.Next(); {
			key.SetIterKey(it)
			keys = append(keys, key.String())
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lookUp returns the entry of a map. at is room for a key, which is made once.
func lookUp(m reflect.Value, key string, at *reflect.Value) reflect.Value {
	if t := m.Type().Key(); !at.IsValid() || at.Type() != t {
		*at = reflect.New(t).Elem()
	}
	at.SetString(key)
	return m.MapIndex(*at)
}

// sameStrings reports whether two maps of strings, such as labels, are equal.
func sameStrings(l, r reflect.Value) bool {
	if l.Len() != r.Len() || !l.CanInterface() {
		return false
	}
	left, ok := l.Interface().(map[string]string)
	if !ok {
		return false
	}
	right := r.Interface().(map[string]string)
	for k, v := range left {
		if w, there := right[k]; !there || v != w {
			return false
		}
	}
	return true
}

func (d *difference) addListing(s *shape, l, r reflect.Value) {
	left, leftOK := deref(l)
	right, rightOK := deref(r)
	opened := d.open()
	leftLen, rightLen := 0, 0
	if leftOK {
		leftLen = left.Len()
	}
	if rightOK {
		rightLen = right.Len()
	}
	leftKeys, rightKeys := d.keys(s, left, leftLen), d.keys(s, right, rightLen)
	paired := leftLen == rightLen // the items are in the same order
	for i, key := range leftKeys {
		j := i
		if i >= len(rightKeys) || !bytes.Equal(key, rightKeys[i]) {
			j = slices.IndexFunc(rightKeys, func(other []byte) bool { return bytes.Equal(key, other) })
			paired = false
		}
		var rv reflect.Value
		if j >= 0 {
			rv = right.Index(j)
		}
		d.addItem(s, key, left.Index(i), rv)
	}
	for j, key := range rightKeys {
		if j < len(leftKeys) && bytes.Equal(key, leftKeys[j]) {
			continue
		}
		if !slices.ContainsFunc(leftKeys, func(other []byte) bool { return bytes.Equal(key, other) }) {
			d.addItem(s, key, reflect.Value{}, right.Index(j))
		}
	}
	d.close(opened, state(l, leftLen > 0), state(r, rightLen > 0))
	if same := paired && len(d.out) < opened; !same && (repeats(leftKeys) || repeats(rightKeys)) {
		d.unknown = true
	}
}

func (d *difference) addItem(s *shape, key []byte, l, r reflect.Value) {
	before, positions := len(d.out), len(d.positions)
	if s.identities {
		d.out = append(d.out, 1)
		d.addIdentity(string(key))
	} else {
		d.out = append(binary.AppendUvarint(d.out, uint64(len(key))+1), key...)
	}
	begun := len(d.out)
	if d.add(s.items, l, r); len(d.out) == begun {
		d.out, d.positions = d.out[:before], d.positions[:positions]
	}
}

// maxItems bounds the lists whose items are compared pairwise.
const maxItems = 64

// keys returns the keys of the items of a list.
func (d *difference) keys(s *shape, list reflect.Value, n int) [][]byte {
	if n > maxItems {
		d.unknown = true
		return nil
	}
	if n == 0 {
		return nil
	}
	keys := make([][]byte, n)
	all := make([]byte, 0, 32*n)
	for i := range n {
		start := len(all)
		if item := list.Index(i); len(s.keys) == 0 {
			all = d.appendKey(all, item)
		} else {
			for k, index := range s.keys {
				part := item.FieldByIndex(index)
				if s.entry[k].CanOmit(part) {
					d.unknown = true // the schema has a default for it
				}
				if s.identities {
					all = append(all, part.String()...)
				} else {
					all = d.appendKey(all, part)
				}
			}
		}
		keys[i] = all[start:len(all):len(all)]
	}
	return keys
}

func (d *difference) appendKey(out []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		return appendText(out, v.String())
	case reflect.Bool:
		if v.Bool() {
			return append(out, 1)
		}
		return append(out, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(out, v.Int())
	}
	d.unknown = true
	return out
}

func repeats(keys [][]byte) bool {
	for i := range keys {
		for j := range i {
			if bytes.Equal(keys[i], keys[j]) {
				return true
			}
		}
	}
	return false
}

// appendText appends a text with its length, which differs from the end of a
// value.
func appendText(out []byte, text string) []byte {
	out = binary.AppendUvarint(out, uint64(len(text))+1)
	return append(out, text...)
}
