package amount

import (
	"errors"
	"fmt"
	"reflect"
)

// CheckCBOR is CheckJSON for a CBOR document. It also refuses quantities with
// tags, which can stand for another encoding of the text.
func CheckCBOR(into any, document []byte) error {
	t, ok := target(into)
	if !ok {
		return nil
	}
	err := (&cborReader{data: document}).value(t)
	if errors.Is(err, errMalformed) {
		return nil // the decoder checks the whole document first
	}
	return err
}

// Major types of CBOR (RFC 8949, 3.1).
const (
	cborBytes = 2
	cborText  = 3
	cborArray = 4
	cborMap   = 5
	cborTag   = 6
	cborOther = 7
)

// cborBreak ends an item of indefinite length.
const cborBreak = 0xff

// maxCBORDepth bounds the recursion. It is above the depth that the decoder
// accepts, 10000.
const maxCBORDepth = 20000

// cborReader reads a CBOR document.
type cborReader struct {
	data  []byte // what is left
	depth int
}

// cborHead is the start of a data item. Items without a length end with a
// break.
type cborHead struct {
	major    byte
	argument uint64 // the length, for those with one
	endless  bool
}

func (r *cborReader) head() (cborHead, error) {
	if len(r.data) == 0 {
		return cborHead{}, errMalformed
	}
	h, info := cborHead{major: r.data[0] >> 5}, r.data[0]&0x1f
	r.data = r.data[1:]
	switch {
	case info < 24:
		h.argument = uint64(info)
		return h, nil
	case info == 31:
		h.endless = true
		return h, nil
	case info > 27:
		return h, errMalformed
	}
	size := 1 << (info - 24)
	if len(r.data) < size {
		return h, errMalformed
	}
	for _, b := range r.data[:size] {
		h.argument = h.argument<<8 | uint64(b)
	}
	r.data = r.data[size:]
	return h, nil
}

// value reads a data item of type t. For a nil t, it holds no quantities.
func (r *cborReader) value(t reflect.Type) error {
	if r.depth >= maxCBORDepth {
		return errMalformed
	}
	r.depth++
	defer func() { r.depth-- }()
	h, err := r.head()
	if err != nil {
		return err
	}
	if t != nil {
		t = pointee(t)
	}
	wanted := t != nil && isQuantity(t)
	switch h.major {
	case cborBytes, cborText:
		text, err := r.text(h)
		if err == nil && wanted {
			err = Check(string(text))
		}
		return err
	case cborArray:
		return r.array(h, t)
	case cborMap:
		return r.entries(h, t)
	case cborTag:
		if wanted {
			return errUnreadable
		}
		return r.value(t)
	case cborOther:
		if h.endless {
			return errMalformed
		}
	}
	return nil
}

// text returns the content of a string, whose head is h.
func (r *cborReader) text(h cborHead) ([]byte, error) {
	if !h.endless {
		if h.argument > uint64(len(r.data)) {
			return nil, errMalformed
		}
		text := r.data[:h.argument]
		r.data = r.data[h.argument:]
		return text, nil
	}
	var text []byte
	for !r.ends() {
		chunk, err := r.head()
		if err != nil || chunk.major != h.major || chunk.endless {
			return nil, errMalformed
		}
		part, err := r.text(chunk)
		if err != nil {
			return nil, err
		}
		text = append(text, part...)
	}
	return text, nil
}

// ends reports whether a break is next, and skips it.
func (r *cborReader) ends() bool {
	if len(r.data) == 0 || r.data[0] != cborBreak {
		return false
	}
	r.data = r.data[1:]
	return true
}

// more reports whether the item with the head h has an element i.
func (r *cborReader) more(h cborHead, i int) bool {
	if h.endless {
		return !r.ends()
	}
	return uint64(i) < h.argument
}

func (r *cborReader) array(h cborHead, t reflect.Type) error {
	var element reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		element = t.Elem()
	}
	for i := 0; r.more(h, i); i++ {
		if err := r.value(element); err != nil {
			return within(err, fmt.Sprintf("[%d]", i))
		}
	}
	return nil
}

// entries reads the keys and values of a map. The keys of a struct are strings
// without tags.
func (r *cborReader) entries(h cborHead, t reflect.Type) error {
	for i := 0; r.more(h, i); i++ {
		name, err := r.key()
		if err != nil {
			return err
		}
		var inner reflect.Type
		step := ""
		if t != nil && !isQuantity(t) && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) {
			if of, at, ok := below(t, name); ok {
				inner, step = of, at
			}
		}
		if err := r.value(inner); err != nil {
			return within(err, step)
		}
	}
	return nil
}

// key reads the key of an entry. It returns "" if that is not a string.
func (r *cborReader) key() (string, error) {
	if len(r.data) > 0 {
		if major := r.data[0] >> 5; major != cborBytes && major != cborText {
			return "", r.value(nil)
		}
	}
	h, err := r.head()
	if err != nil {
		return "", err
	}
	text, err := r.text(h)
	return string(text), err
}
