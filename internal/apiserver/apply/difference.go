package apply

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// jsonName is a struct field's name in JSON, "-" for none.
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

// difference writes down which fields two objects of one type do not have in
// common, as far as the ownership of fields depends on it: which were added,
// removed or modified and by which keys they are found, but no values. Two
// pairs of objects with the same difference have the same effect on
// metadata.managedFields.
//
//	object     ::= structure
//	structure  ::= states { field number, difference of the field } 0
//	mapping    ::= states { key, leaf } 0
//	listing    ::= states { keys of the item, difference of the item } 0
//	leaf       ::= added | removed | modified
//
// What is the same on both sides is left out.
type difference struct {
	out []byte
	// unknown says that the difference holds something that is not written
	// down, so that nothing can be concluded from it.
	unknown bool
}

// How a value is there on one side.
const (
	absent = iota
	null
	empty
	full
)

// What happened to a leaf.
const (
	added    = 1
	removed  = 2
	modified = 3
)

const end = 0

// add writes down the difference of two values, either of which may be
// absent: the zero reflect.Value.
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

// equalLeaves says whether two values are the same in JSON.
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
	return reflect.DeepEqual(l.Interface(), r.Interface()) || value.Equals(valueOf(l), valueOf(r))
}

// valueOf is v as the merging sees it.
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

// follow returns what a pointer points to; ok is false for nil.
func follow(v reflect.Value) (to reflect.Value, ok bool) {
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

// state is how v is there; some says whether there is anything in it.
func state(v reflect.Value, some bool) byte {
	switch _, ok := follow(v); {
	case !v.IsValid():
		return absent
	case !ok:
		return null
	case !some:
		return empty
	}
	return full
}

// open begins a value that has others in it; close takes the beginning back if
// neither they nor the states differ.
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
	left, leftOK := follow(l)
	right, rightOK := follow(r)
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

// field returns a struct's field, or the zero Value if JSON leaves it out.
func field(f *fieldShape, in reflect.Value) reflect.Value {
	v := in.FieldByIndex(f.index)
	if f.entry.CanOmit(v) {
		return reflect.Value{}
	}
	return v
}

func (d *difference) addMapping(s *shape, l, r reflect.Value) {
	left, leftOK := follow(l)
	right, rightOK := follow(r)
	var keys []string
	if leftOK && rightOK && sameStrings(left, right) {
		return
	}
	if rightOK {
		for it := right.MapRange(); it.Next(); {
			keys = append(keys, it.Key().String())
		}
	}
	if leftOK {
		for it := left.MapRange(); it.Next(); {
			if !rightOK || !right.MapIndex(it.Key()).IsValid() {
				keys = append(keys, it.Key().String())
			}
		}
	}
	slices.Sort(keys)
	opened := d.open()
	for _, key := range keys {
		var lv, rv reflect.Value
		if leftOK {
			lv = left.MapIndex(reflect.ValueOf(key).Convert(left.Type().Key()))
		}
		if rightOK {
			rv = right.MapIndex(reflect.ValueOf(key).Convert(right.Type().Key()))
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

// sameStrings recognizes equal labels and annotations.
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
	left, leftOK := follow(l)
	right, rightOK := follow(r)
	opened := d.open()
	leftLen, rightLen := 0, 0
	if leftOK {
		leftLen = left.Len()
	}
	if rightOK {
		rightLen = right.Len()
	}
	leftKeys, rightKeys := d.keys(s, left, leftLen), d.keys(s, right, rightLen)
	paired := leftLen == rightLen // in the same order
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
	before := len(d.out)
	d.out = append(binary.AppendUvarint(d.out, uint64(len(key))+1), key...)
	begun := len(d.out)
	if d.add(s.items, l, r); len(d.out) == begun {
		d.out = d.out[:before]
	}
}

// maxItems bounds the lists whose items are paired by looking for each other.
const maxItems = 64

// keys returns what tells the items of a list apart.
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
					d.unknown = true // the schema's default
				}
				all = d.appendKey(all, part)
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

// appendText appends a text in a form that shows where it ends and differs
// from the end of a value.
func appendText(out []byte, text string) []byte {
	out = binary.AppendUvarint(out, uint64(len(text))+1)
	return append(out, text...)
}
