package watchcache

import (
	"reflect"
	"strings"

	"github.com/coracle-io/coracle/internal/resource"
)

const (
	// packObjects is the number of objects that share an allocation, which is freed
	// when none of them is referenced.
	packObjects = 64
	// packText is the number of bytes of text in an allocation.
	packText = 16 << 10
)

// packer copies immutable objects to few allocations. An object that is decoded on its
// own consists of a dozen allocations. Equal strings are stored once:
//
//	objects   [event event event event ...]
//	slices    [owner owner][owner][managed managed managed ...]
//	text      [web-1.18c2 default Pod web-1 ...]
//
// The copies share structs with unexported fields, such as time.Time, with the originals.
type packer struct {
	pieces map[reflect.Type]reflect.Value // the unused rest of the last allocation of a type
	opaque map[reflect.Type]bool          // whether a struct has unexported fields
	text   strings.Builder
	texts  map[string]string
	bytes  map[string][]byte
}

func newPacker() *packer {
	return &packer{pieces: map[reflect.Type]reflect.Value{}, opaque: map[reflect.Type]bool{}, texts: map[string]string{}, bytes: map[string][]byte{}}
}

// object returns a copy of an object.
func (p *packer) object(obj resource.Object) resource.Object {
	from := reflect.ValueOf(obj)
	to := reflect.New(from.Type()).Elem()
	p.copy(to, from)
	return to.Interface().(resource.Object)
}

// copy sets to, which is zero, to a copy of from.
func (p *packer) copy(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.String:
		to.SetString(p.string(from.String()))
	case reflect.Pointer:
		if !from.IsNil() {
			piece := p.take(from.Type().Elem(), 1).Index(0)
			p.copy(piece, from.Elem())
			to.Set(piece.Addr())
		}
	case reflect.Slice:
		p.copySlice(to, from)
	case reflect.Map:
		p.copyMap(to, from)
	case reflect.Struct:
		p.copyStruct(to, from)
	default:
		to.Set(from)
	}
}

func (p *packer) copySlice(to, from reflect.Value) {
	switch n := from.Len(); {
	case n == 0:
		to.Set(from)
	case from.Type().Elem().Kind() == reflect.Uint8:
		to.SetBytes(p.shareBytes(from.Bytes()))
	default:
		piece := p.take(from.Type().Elem(), n)
		for i := range n {
			p.copy(piece.Index(i), from.Index(i))
		}
		to.Set(piece.Convert(to.Type()))
	}
}

func (p *packer) copyMap(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
	for entries := from.MapRange(); entries.Next(); {
		key, value := reflect.New(from.Type().Key()).Elem(), reflect.New(from.Type().Elem()).Elem()
		p.copy(key, entries.Key())
		p.copy(value, entries.Value())
		to.SetMapIndex(key, value)
	}
}

func (p *packer) copyStruct(to, from reflect.Value) {
	if p.isOpaque(from.Type()) {
		to.Set(from)
		return
	}
	for i := range from.NumField() {
		p.copy(to.Field(i), from.Field(i))
	}
}

func (p *packer) isOpaque(of reflect.Type) bool {
	opaque, known := p.opaque[of]
	if !known {
		for i := range of.NumField() {
			opaque = opaque || !of.Field(i).IsExported()
		}
		p.opaque[of] = opaque
	}
	return opaque
}

// take returns a slice of n zero values with capacity n.
func (p *packer) take(of reflect.Type, n int) reflect.Value {
	piece, ok := p.pieces[of]
	if !ok || piece.Len() < n {
		size := max(n, packObjects)
		piece = reflect.MakeSlice(reflect.SliceOf(of), size, size)
	}
	p.pieces[of] = piece.Slice(n, piece.Len())
	return piece.Slice3(0, n, n)
}

// string returns a copy of a string in shared memory.
func (p *packer) string(s string) string {
	if s == "" {
		return ""
	}
	if kept, ok := p.texts[s]; ok {
		return kept
	}
	if p.text.Cap()-p.text.Len() < len(s) {
		p.text = strings.Builder{}
		p.text.Grow(max(packText, len(s)))
	}
	start := p.text.Len()
	p.text.WriteString(s)
	kept := p.text.String()[start:]
	p.texts[kept] = kept
	return kept
}

// shareBytes returns a copy of bytes that equal slices share.
func (p *packer) shareBytes(b []byte) []byte {
	if kept, ok := p.bytes[string(b)]; ok {
		return kept
	}
	kept := p.take(reflect.TypeFor[byte](), len(b)).Bytes()
	copy(kept, b)
	p.bytes[string(b)] = kept
	return kept
}
